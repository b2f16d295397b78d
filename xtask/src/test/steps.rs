//! The steps that a change must pass, and which of them run in parallel. Pure.

/// Number of simulator seeds that a change must pass.
const SEEDS: u64 = 24;
/// Number of seeds within which the simulator must detect a broken rule.
const FOUND_WITHIN: u64 = 300;
/// Number of seeds in which a quorum is lost and repaired.
const LOST_QUORUMS: u64 = 8;
/// Number of seeds of any other scenario.
const PLAYED: u64 = 4;
/// Number of seeds of a scenario in which a seed takes several seconds.
const PLAYED_SLOWLY: u64 = 2;
/// The rules that are broken deliberately: the step's name, the first seed, and the name of the mutation in the simulator. If the first
/// seed is high, it is the first one that detects the broken rule.
const BROKEN: [(&str, u64, &str); 28] = [
    ("broken barrier", 97, "narrow-without-the-barrier"),
    ("broken majority", 1, "commit-on-a-minority"),
    ("broken disk", 1, "acknowledge-before-the-disk"),
    ("broken recovery", 1, "trust-a-cut-tail"),
    ("broken flush", 1, "answer-before-the-flush"),
    ("broken hard state", 24, "skip-the-metadata-sync"),
    ("broken vote", 1, "vote-without-the-log-check"),
    ("broken proxy", 250, "proxy-ignores-the-term"),
    ("broken bytes", 1, "reword-memberships"),
    ("broken term", 479, "repair-without-a-clock"),
    ("broken proof", 6, "believe-any-set"),
    ("broken admission", 55, "trust-a-wiped-disk"),
    ("broken numbers", 7, "forget-used-numbers"),
    ("broken lease", 209, "forget-the-lease"),
    ("broken promise", 1, "refuse-for-the-living"),
    ("broken removal", 5, "remove-by-region"),
    ("broken count", 1, "count-a-learner"),
    ("broken purge", 1, "purge-past-regions"),
    ("broken reads", 4, "stop-at-a-bad-read"),
    ("broken policy", 1, "believe-the-file"),
    ("broken queue", 1, "wait-in-the-loop"),
    ("broken answer", 1, "answer-before-the-ack"),
    ("broken trim", 3, "keep-the-tail"),
    ("broken stop", 1, "stop-the-server-first"),
    ("broken pause", 1, "resume-unasked"),
    ("broken connections", 6, "trust-open-connections"),
    ("broken format", 1, "claim-any-format"),
    ("broken conversion", 1, "release-in-words"),
];

/// A short run of the nemesis: each kind of fault once, from a fixed seed. Stops are shorter than a minute.
const NEMESIS: &str = "nemesis --cycles 16 --seed 1 --longest-stop 12";

/// All steps, in lanes. The steps of a lane run sequentially, and the lanes run in parallel.
pub(super) struct Plan {
    /// Steps that leave much of the machine idle, because they wait for processes, clocks and disks.
    pub(super) waiting: Vec<Step>,
    /// Waiting steps too, whose time limits tolerate parallel steps. The tests that run alone follow them.
    pub(super) packaging: Vec<Step>,
    /// Steps that use the remaining processor time. They measure no time, and have no time limit that a parallel build could exceed.
    pub(super) computing: Vec<Step>,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Compares size, import cycles, words and commit subjects with their limits.
    Limits,
    /// Checks the format of all files.
    Format,
    /// Compiles, lints and documents everything.
    Programs,
    /// Runs the tests, except those that run alone and those that only compute.
    Tests,
    /// Runs the tests that use no mysqld.
    QuickTests,
    /// Runs the tests that only compute.
    ComputingTests,
    /// Runs the tests that must run alone.
    TestsAlone,
    /// Finds or unpacks a mysqld.
    Mysql,
    /// Runs `cargo lab` with these arguments, with programs that the tests have built.
    Lab(Vec<String>),
    /// Makes the images that the containers of later steps begin with.
    Images,
    /// Installs, uses and removes packages of the built programs, in a container.
    Packages,
    /// Injects faults into a ring in three regions of containers, with the built programs.
    Containers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// A step of another lane that must end first. This step needs its result, or would hold cargo's lock, for which the other step would
    /// wait.
    pub(super) after: Option<&'static str>,
    pub(super) action: Action,
}

impl Plan {
    /// Returns all steps. With `quick`, only those that use no mysqld and no container.
    pub(super) fn new(quick: bool) -> Self {
        let limits = Step::new("limits", Action::Limits);
        let format = Step::new("format", Action::Format);
        let programs = Step::new("programs", Action::Programs);
        // All lanes share the folder of the build.
        let computing = simulated().into_iter().map(|step| step.after("programs"));
        let tests_that_compute = Step::new("computing tests", Action::ComputingTests);
        let (waiting, packaging) = if quick {
            let tests = Step::new("tests", Action::QuickTests);
            (vec![limits, format, programs, tests], Vec::new())
        } else {
            let alone = Step::new("tests alone", Action::TestsAlone);
            let waiting = vec![
                limits,
                format,
                Step::new("mysql", Action::Mysql),
                programs,
                Step::new("tests", Action::Tests),
                alone.after("nemesis"),
            ];
            let packaging = vec![
                // The image of mysqld consists of the unpacked tree.
                Step::new("images", Action::Images).after("mysql"),
                Step::new("packages", Action::Packages).after("programs"),
                Step::new("containers", Action::Containers),
                Step::new("nemesis", lab(NEMESIS)),
            ];
            (waiting, packaging)
        };
        Self {
            waiting,
            packaging,
            computing: computing.chain([tests_that_compute]).collect(),
        }
    }

    /// Removes the steps before `name` in its lane. In the other lanes, removes the steps up to the one that `name` waits for.
    ///
    /// # Errors
    /// If no step has this name, the names of all steps.
    pub(super) fn from(mut self, name: &str) -> Result<Self, Vec<&'static str>> {
        let place = |steps: &[Step], name| steps.iter().position(|step| step.name == name);
        if !self.has(name) {
            return Err(self.names());
        }
        let mut after = None;
        for lane in self.lanes() {
            if let Some(at) = place(lane, name) {
                after = lane[at].after;
                lane.drain(..at);
            }
        }
        for lane in self.lanes() {
            let over = after.and_then(|after| place(lane, after));
            lane.drain(..over.map_or(0, |over| over + 1));
        }
        Ok(self)
    }

    fn lanes(&mut self) -> [&mut Vec<Step>; 3] {
        [&mut self.waiting, &mut self.packaging, &mut self.computing]
    }

    /// Returns whether there is a step with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.steps().any(|step| step.name == name)
    }

    fn names(&self) -> Vec<&'static str> {
        self.steps().map(|step| step.name).collect()
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        let waiting = self.waiting.iter().chain(&self.packaging);
        waiting.chain(&self.computing)
    }
}

impl Step {
    fn new(name: &'static str, action: Action) -> Self {
        Self {
            name,
            after: None,
            action,
        }
    }

    fn after(self, name: &'static str) -> Self {
        Self {
            after: Some(name),
            ..self
        }
    }
}

fn lab(arguments: &str) -> Action {
    Action::Lab(arguments.split(' ').map(str::to_owned).collect())
}

/// Returns the steps of the simulator.
fn simulated() -> Vec<Step> {
    let seeds = |name, count, scenario: &str| {
        let action = lab(&format!("sim --seeds {count} --scenario {scenario}"));
        Step::new(name, action)
    };
    let mut steps = vec![
        Step::new("simulator", lab(&format!("sim --seeds {SEEDS}"))),
        seeds("lost quorum", LOST_QUORUMS, "lost-quorum"),
    ];
    for scenario in [
        "removals",
        "learners",
        "purges",
        "cold-damage",
        "mysqlds",
        "mysqld-operations",
        "provisioning",
        "conversions",
        "policies",
        "slow-disk",
        "transport",
        "upgrades",
    ] {
        let played = match scenario {
            "mysqlds" | "mysqld-operations" | "provisioning" | "conversions" | "transport"
            | "upgrades" => PLAYED_SLOWLY,
            _ => PLAYED,
        };
        steps.push(seeds(scenario, played, scenario));
    }
    for (name, first, mutation) in BROKEN {
        let arguments = format!("sim --from {first} --seeds {FOUND_WITHIN} --mutate {mutation}");
        steps.push(Step::new(name, lab(&arguments)));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &[Step]) -> Vec<&'static str> {
        steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn everything_is_checked_with_a_mysqld_before_the_tests() {
        let plan = Plan::new(false);
        assert_eq!(
            names(&plan.waiting),
            [
                "limits",
                "format",
                "mysql",
                "programs",
                "tests",
                "tests alone"
            ]
        );
        assert_eq!(
            names(&plan.packaging),
            ["images", "packages", "containers", "nemesis"]
        );
        assert_eq!(
            names(&plan.computing),
            [
                "simulator",
                "lost quorum",
                "removals",
                "learners",
                "purges",
                "cold-damage",
                "mysqlds",
                "mysqld-operations",
                "provisioning",
                "conversions",
                "policies",
                "slow-disk",
                "transport",
                "upgrades",
                "broken barrier",
                "broken majority",
                "broken disk",
                "broken recovery",
                "broken flush",
                "broken hard state",
                "broken vote",
                "broken proxy",
                "broken bytes",
                "broken term",
                "broken proof",
                "broken admission",
                "broken numbers",
                "broken lease",
                "broken promise",
                "broken removal",
                "broken count",
                "broken purge",
                "broken reads",
                "broken policy",
                "broken queue",
                "broken answer",
                "broken trim",
                "broken stop",
                "broken pause",
                "broken connections",
                "broken format",
                "broken conversion",
                "computing tests"
            ]
        );
    }

    /// A step never begins if two steps wait for each other, or if a step waits for a later one in its own lane.
    #[test]
    fn every_step_can_begin() {
        for quick in [false, true] {
            let plan = Plan::new(quick);
            let mut lanes = [&plan.waiting[..], &plan.packaging, &plan.computing];
            let mut over = Vec::new();
            while lanes.iter().any(|lane| !lane.is_empty()) {
                let before = over.len();
                for lane in &mut lanes {
                    if let Some((step, rest)) = lane.split_first()
                        && step.after.is_none_or(|name| over.contains(&name))
                    {
                        over.push(step.name);
                        *lane = rest;
                    }
                }
                assert!(over.len() > before, "{:?}", plan.names());
            }
        }
    }

    #[test]
    fn quick_leaves_out_the_mysqld_and_only_that() {
        let (quick, full) = (Plan::new(true), Plan::new(false));
        assert_eq!(
            names(&quick.waiting),
            ["limits", "format", "programs", "tests"]
        );
        assert!(quick.packaging.is_empty());
        assert_eq!(quick.waiting[3].action, Action::QuickTests);
        assert_eq!(names(&quick.computing), names(&full.computing));
    }

    #[test]
    fn text_before_a_step_is_omitted() {
        let from = |name| Plan::new(false).from(name);
        let plan = from("packages").unwrap();
        assert_eq!(names(&plan.waiting), ["tests", "tests alone"]);
        assert_eq!(names(&plan.packaging)[0], "packages");
        assert_eq!(plan.computing, Plan::new(false).computing);
        let plan = from("tests alone").unwrap();
        assert_eq!(names(&plan.waiting), ["tests alone"]);
        assert!(!plan.has("nemesis"));
        let plan = from("broken barrier").unwrap();
        assert_eq!(names(&plan.waiting)[0], "tests");
        assert_eq!(names(&plan.computing)[0], "broken barrier");
        assert!(!plan.has("programs") && plan.has("tests"));
        let all = from("nothing").err().unwrap();
        assert_eq!(all, Plan::new(false).names());
    }
}
