//! Polls `/primary` of every database member to find the primary for the clients. Also checks the answers. After a member was the primary
//! of a later term, no member may report to be the primary of an earlier term.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::cluster::http_get_within;

use crate::summary::Findings;

/// Pause between two requests to a member.
const PACE: Duration = Duration::from_millis(40);
/// Time limit for an answer. A member that does not answer in time is not the primary, as for a load balancer.
const LIMIT: Duration = Duration::from_millis(1500);

/// A database member with its addresses for clients.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) http: SocketAddr,
    pub(crate) socket: PathBuf,
}

/// A positive answer: the member is the primary in this term. Also the times of request and answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yes {
    pub(crate) term: u64,
    pub(crate) asked: Instant,
    pub(crate) heard: Instant,
}

#[derive(Debug, Default)]
struct Board {
    /// For each member, the positive answer to the last request, if any.
    yes: Vec<Option<Yes>>,
    /// The first positive answer of the latest term, with the member's index.
    latest: Option<(usize, Yes)>,
}

impl Board {
    /// Records an answer. If a member had reported a later term before this request was sent, returns the index of that member.
    fn note(&mut self, place: usize, answer: Option<Yes>) -> Option<usize> {
        self.yes[place] = answer;
        let yes = answer?;
        match self.latest {
            Some((by, latest)) if latest.term > yes.term => {
                (latest.heard < yes.asked).then_some(by)
            }
            // The first positive answer of a term is kept.
            Some((_, latest)) if latest.term == yes.term => None,
            _ => {
                self.latest = Some((place, yes));
                None
            }
        }
    }
}

/// The threads that poll the members. Dropping this value ends them.
#[derive(Debug)]
pub(crate) struct Guide {
    places: Vec<Place>,
    board: Arc<Mutex<Board>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The current answers, for clients.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    places: Arc<[Place]>,
    board: Arc<Mutex<Board>>,
}

impl Guide {
    pub(crate) fn start(places: Vec<Place>, findings: &Findings) -> Self {
        let board = Board {
            yes: vec![None; places.len()],
            latest: None,
        };
        let board = Arc::new(Mutex::new(board));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = places.iter().enumerate().map(|(index, place)| {
            let (place, board, stop) = (place.clone(), board.clone(), stop.clone());
            let (all, findings) = (places.clone(), findings.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let answer = ask(place.http);
                    let stale = lock(&board).note(index, answer);
                    if let Some(by) = stale {
                        findings.add(format!(
                            "{} says that it is the primary of term {:?} after {} said so in a later one",
                            place.name,
                            answer.map(|yes| yes.term),
                            all[by].name
                        ));
                    }
                    thread::sleep(PACE);
                }
            })
        });
        let threads = threads.collect();
        Self {
            places,
            board,
            stop,
            threads,
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        Direction {
            places: self.places.clone().into(),
            board: self.board.clone(),
        }
    }
}

impl Direction {
    /// The member to write to: its index, and its addresses.
    pub(crate) fn primary(&self) -> Option<(usize, Place)> {
        let index = self.primary_index()?;
        Some((index, self.places[index].clone()))
    }

    /// The index of the member to write to.
    pub(crate) fn primary_index(&self) -> Option<usize> {
        let board = lock(&self.board);
        let said = board.yes.iter().enumerate();
        let said = said.filter_map(|(index, yes)| Some((index, (*yes)?)));
        let latest = said.max_by_key(|(_, yes)| (yes.term, yes.heard))?;
        Some(latest.0)
    }
}

impl Direction {
    /// The last answer of the member at this index, if it was positive.
    pub(crate) fn claim(&self, index: usize) -> Option<Yes> {
        lock(&self.board).yes[index]
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

fn ask(http: SocketAddr) -> Option<Yes> {
    let asked = Instant::now();
    let answer = http_get_within(http, "/primary", LIMIT).ok()?;
    if answer.status != 200 {
        return None;
    }
    Some(Yes {
        term: answer.json().ok()?["term"].as_u64()?,
        asked,
        heard: Instant::now(),
    })
}

fn lock(board: &Mutex<Board>) -> std::sync::MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_is_stale_after_a_later_one() {
        let start = Instant::now();
        let yes = |term, asked, heard| {
            Some(Yes {
                term,
                asked: start + Duration::from_millis(asked),
                heard: start + Duration::from_millis(heard),
            })
        };
        let mut board = Board {
            yes: vec![None; 2],
            latest: None,
        };
        assert_eq!(board.note(0, yes(1, 0, 1)), None);
        assert_eq!(board.note(1, yes(2, 10, 20)), None);
        assert_eq!(board.note(0, yes(1, 15, 30)), None, "both may be true");
        assert_eq!(board.note(0, None), None);
        assert_eq!(board.note(0, yes(1, 21, 30)), Some(1));
        assert_eq!(board.note(1, yes(2, 40, 50)), None);
        assert_eq!(
            board.note(0, yes(1, 45, 60)),
            Some(1),
            "the first of a term counts"
        );
        assert_eq!(board.note(0, yes(3, 45, 60)), None);
    }
}
