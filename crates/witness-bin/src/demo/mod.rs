//! The main job, shown: a ring under load, members that crash and come back, and at the end the proof
//! that nothing acknowledged is missing anywhere.

mod comparison;
mod scoreboard;
mod screen;
mod story;
