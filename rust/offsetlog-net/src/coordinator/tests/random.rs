//! Random histories of members, connections and commits under a seeded scheduler: what must hold at each moment, and at the end.

use super::*;
use std::collections::HashMap;

const TOPICS: &[(&str, i32)] = &[("one", 4)];
const GROUP: &str = "group";
const HISTORIES: u64 = 400;
const STEPS: usize = 300;
const SESSION_MS: i32 = 1000;
const REBALANCE_MS: i32 = 2000;

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Join,
    Sync,
}

/// A client like a consumer's, except for its accidents.
#[derive(Debug, Default)]
struct Client {
    member: String,
    instance: Option<String>,
    generation: i32,
    is_leader: bool,
    members: Vec<String>,
    is_joined: bool,
    /// The ticket, what it is for, and since when.
    waiting: Option<(u64, Waiting, i64)>,
    connection: u64,
    /// Answers nothing any more until it comes back.
    is_dead: bool,
}

/// What is known of a generation from its answers.
#[derive(Debug, Default)]
struct Generation {
    leader: Option<String>,
    protocol: Option<String>,
    /// What the leader assigned.
    given: Option<BTreeMap<String, Vec<u8>>>,
}

struct History {
    random: fastrand::Rng,
    now: i64,
    coordinator: Coordinator,
    clients: Vec<Client>,
    generations: BTreeMap<i32, Generation>,
    newest: i32,
    /// By partition: what was acknowledged last.
    committed: HashMap<i32, i64>,
    connections: u64,
    events: Vec<String>,
    accepted: usize,
    assigned: usize,
    rebalances: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let options = CoordinatorOptions {
            initial_rebalance_delay_ms: i64::from(random.i32(0..4)) * 300,
            min_session_timeout_ms: 1,
            max_group_size: if random.u8(0..4) == 0 { 2 } else { 100 },
            seed: Some(seed),
            ..CoordinatorOptions::default()
        };
        let clients = (0..random.usize(1..6)).map(|number| Client {
            instance: (random.u8(0..3) == 0).then(|| format!("static-{number}")),
            connection: number as u64,
            ..Client::default()
        });
        Self {
            clients: clients.collect(),
            coordinator: coordinator(options, TOPICS),
            random,
            now: 0,
            generations: BTreeMap::new(),
            newest: 0,
            committed: HashMap::new(),
            connections: 100,
            events: Vec::new(),
            accepted: 0,
            assigned: 0,
            rebalances: 0,
        }
    }

    fn ask(&mut self, client: usize, api_key: i16, version: i16, request: &Struct<'_>) -> Answer {
        let connection_id = self.clients[client].connection;
        let context = Context {
            client_id: "client",
            client_host: "/127.0.0.1",
            connection_id,
        };
        // As it comes from the wire.
        let table = &api(api_key).unwrap().request;
        let mut bytes = Vec::new();
        table.write(version, request, &mut bytes).unwrap();
        let mut reader = Reader::new(&bytes, Part::Protocol);
        let request = table.read(version, &mut reader).unwrap();
        let answer = self
            .coordinator
            .handle(api_key, version, &request, &context, self.now);
        if let Answer::Wait { until_ms, .. } = answer {
            assert!(until_ms >= self.now, "it waits for the past");
        }
        self.events.push(format!(
            "{} {client} {}",
            self.now,
            api(api_key).unwrap().name
        ));
        answer
    }

    fn reply(
        &mut self,
        client: usize,
        api_key: i16,
        version: i16,
        request: &Struct<'_>,
    ) -> Struct<'static> {
        match self.ask(client, api_key, version, request) {
            Answer::Reply(response) => over_the_wire(api_key, version, &response),
            Answer::Wait { .. } => panic!("{api_key} does not wait"),
        }
    }

    fn step(&mut self) {
        self.now += self.random.i64(0..400);
        if self.random.u8(0..3) == 0 {
            let next = self.coordinator.tick(self.now);
            assert!(next > self.now, "due at {next}, at {}", self.now);
        }
        let client = self.random.usize(0..self.clients.len());
        self.look(client);
        let accident = self.random.u8(0..40);
        let it = &mut self.clients[client];
        match accident {
            0 => it.is_dead = true,
            1 => self.lose_connection(client),
            2 => self.leave(client),
            3 => {
                // It forgets who it is, as a program does that is started again.
                let connection = it.connection;
                let instance = it.instance.clone();
                *it = Client {
                    instance,
                    connection,
                    ..Client::default()
                };
                self.lose_connection(client);
            }
            4..8 if it.is_dead => {
                it.is_dead = false;
                self.lose_connection(client);
            }
            _ if it.is_dead || it.waiting.is_some() => {}
            _ if !it.is_joined => self.join(client),
            _ if self.random.bool() => self.heartbeat(client),
            _ => self.commit(client),
        }
    }

    fn lose_connection(&mut self, client: usize) {
        let it = &mut self.clients[client];
        self.coordinator.disconnect(it.connection, self.now);
        self.connections += 1;
        it.connection = self.connections;
        it.waiting = None;
        it.is_joined = false;
    }

    fn join(&mut self, client: usize) {
        let it = &self.clients[client];
        let version = if it.instance.is_some() {
            9
        } else {
            self.random.i16(0..10)
        };
        let names = if self.random.u8(0..8) == 0 {
            vec!["roundrobin", "range"]
        } else {
            vec!["range", "roundrobin"]
        };
        let names = names.into_iter().map(|name| {
            Struct::new().with("name", name).with(
                "metadata",
                vec![0_u8, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            )
        });
        let request = Struct::new()
            .with("groupId", GROUP)
            .with("sessionTimeoutMs", SESSION_MS)
            .with("rebalanceTimeoutMs", REBALANCE_MS)
            .with("memberId", it.member.clone())
            .with("groupInstanceId", it.instance.clone())
            .with("protocolType", "consumer")
            .with("protocols", names.collect::<Vec<_>>());
        match self.ask(client, apis::JOIN_GROUP.key, version, &request) {
            Answer::Reply(response) => {
                self.joined(
                    client,
                    &over_the_wire(apis::JOIN_GROUP.key, version, &response),
                );
            }
            Answer::Wait { ticket, .. } => {
                self.clients[client].waiting = Some((ticket, Waiting::Join, self.now));
            }
        }
    }

    fn joined(&mut self, client: usize, response: &Struct<'_>) {
        let it = &mut self.clients[client];
        it.is_joined = false;
        match code(response) {
            0 => {}
            79 => {
                it.member = text(response, "memberId");
                return self.join(client);
            }
            25 | 82 => {
                it.member.clear();
                return;
            }
            27 | 81 => return,
            other => panic!("a join is answered by {other}"),
        }
        let generation = int32(response, "generationId");
        it.member = text(response, "memberId");
        assert!(
            generation >= it.generation,
            "generation {generation} after {}",
            it.generation
        );
        it.generation = generation;
        let leader = text(response, "leader");
        it.is_leader = leader == it.member;
        it.members = structs(response, "members")
            .map(|member| text(member, "memberId"))
            .collect();
        it.is_joined = true;
        let skips = response.get("skipAssignment").and_then(Value::as_bool) == Some(true);
        let is_told = !it.members.is_empty();
        self.rebalances += usize::from(generation > self.newest);
        self.newest = self.newest.max(generation);
        let known = self.generations.entry(generation).or_default();
        let protocol = optional(response, "protocolName");
        if known.protocol.is_some() {
            assert_eq!(known.protocol, protocol, "one protocol a generation");
        }
        known.protocol = protocol;
        let is_leader = it.is_leader;
        if is_leader && is_told {
            // A static member that comes back leads under another id.
            let earlier = known.leader.replace(leader.clone());
            let is_static = it.instance.is_some();
            assert!(
                earlier.is_none_or(|it| it == leader || is_static),
                "one leader a generation"
            );
        }
        // Sometimes it is slow.
        if self.random.u8(0..10) > 0 {
            self.sync(client, skips);
        }
    }

    fn sync(&mut self, client: usize, skips: bool) {
        let it = &self.clients[client];
        let given: BTreeMap<String, Vec<u8>> = if it.is_leader && !skips {
            let members = it.members.iter();
            members
                .map(|member| {
                    (
                        member.clone(),
                        format!("{} {member}", it.generation).into_bytes(),
                    )
                })
                .collect()
        } else {
            BTreeMap::new()
        };
        let assignments = given.iter().map(|(member, assignment)| {
            Struct::new()
                .with("memberId", member.clone())
                .with("assignment", assignment.clone())
        });
        let protocol = self.generations[&it.generation]
            .protocol
            .clone()
            .unwrap_or_default();
        let request = Struct::new()
            .with("groupId", GROUP)
            .with("generationId", it.generation)
            .with("memberId", it.member.clone())
            .with("groupInstanceId", it.instance.clone())
            .with("protocolType", "consumer")
            .with("protocolName", protocol)
            .with("assignments", assignments.collect::<Vec<_>>());
        let generation = it.generation;
        let version = 5;
        let answer = self.ask(client, apis::SYNC_GROUP.key, version, &request);
        match answer {
            Answer::Reply(response) => {
                let response = over_the_wire(apis::SYNC_GROUP.key, version, &response);
                if code(&response) == 0 && !given.is_empty() {
                    let known = self.generations.get_mut(&generation).unwrap();
                    known.given.get_or_insert(given);
                }
                self.synced(client, &response);
            }
            Answer::Wait { ticket, .. } => {
                self.clients[client].waiting = Some((ticket, Waiting::Sync, self.now));
            }
        }
    }

    fn synced(&mut self, client: usize, response: &Struct<'_>) {
        let it = &mut self.clients[client];
        match code(response) {
            0 => {
                self.assigned += 1;
                let assignment = bytes(response, "assignment");
                let known = &self.generations[&it.generation];
                let given = known
                    .given
                    .as_ref()
                    .expect("an assignment before the leader gave one");
                match given.get(&it.member) {
                    Some(given) => assert_eq!(given, &assignment, "what the leader gave"),
                    // A static member that came back has what its earlier id was given.
                    None if it.instance.is_some() => {
                        assert!(
                            assignment.is_empty() || given.values().any(|it| *it == assignment)
                        );
                    }
                    None => assert!(
                        assignment.is_empty(),
                        "nothing for whom the leader did not name"
                    ),
                }
            }
            25 | 82 => {
                it.is_joined = false;
                it.member.clear();
            }
            22 | 23 | 27 => it.is_joined = false,
            other => panic!("a sync is answered by {other}"),
        }
    }

    /// Looks for the answer that a client waits for.
    fn look(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let Some((ticket, what, since)) = it.waiting else {
            return;
        };
        match self.coordinator.poll(ticket, self.now) {
            Answer::Wait { .. } => {
                // All members' sessions and the rebalance may have to end one after the other.
                let bound = 10 * i64::from(SESSION_MS + REBALANCE_MS);
                assert!(
                    self.now - since <= bound,
                    "{what:?} waits since {since}, at {}",
                    self.now
                );
            }
            Answer::Reply(response) => {
                it.waiting = None;
                match what {
                    Waiting::Join => {
                        self.joined(client, &over_the_wire(apis::JOIN_GROUP.key, 9, &response));
                    }
                    Waiting::Sync => {
                        self.synced(client, &over_the_wire(apis::SYNC_GROUP.key, 5, &response));
                    }
                }
            }
        }
    }

    fn heartbeat(&mut self, client: usize) {
        let it = &self.clients[client];
        let request = Struct::new()
            .with("groupId", GROUP)
            .with("generationId", it.generation)
            .with("memberId", it.member.clone())
            .with("groupInstanceId", it.instance.clone());
        let response = self.reply(client, apis::HEARTBEAT.key, 4, &request);
        let it = &mut self.clients[client];
        match code(&response) {
            0 => assert_eq!(
                it.generation, self.newest,
                "only the newest generation is alive"
            ),
            22 | 27 => it.is_joined = false,
            25 | 82 => {
                it.is_joined = false;
                it.member.clear();
            }
            other => panic!("a heartbeat is answered by {other}"),
        }
    }

    fn commit(&mut self, client: usize) {
        let (partition, offset) = (self.random.i32(0..4), self.random.i64(0..1 << 40));
        let it = &self.clients[client];
        let partitions = vec![
            Struct::new()
                .with("partitionIndex", partition)
                .with("committedOffset", offset)
                .with("committedMetadata", "m"),
        ];
        let topics = vec![
            Struct::new()
                .with("name", "one")
                .with("partitions", partitions),
        ];
        let request = Struct::new()
            .with("groupId", GROUP)
            .with("generationIdOrMemberEpoch", it.generation)
            .with("memberId", it.member.clone())
            .with("groupInstanceId", it.instance.clone())
            .with("topics", topics);
        let generation = it.generation;
        let response = self.reply(client, apis::OFFSET_COMMIT.key, 9, &request);
        let topic = structs(&response, "topics").next().unwrap().clone();
        let answered = structs(&topic, "partitions").next().unwrap().clone();
        match code(&answered) {
            0 => {
                assert_eq!(generation, self.newest, "no commit of an old generation");
                self.committed.insert(partition, offset);
                self.accepted += 1;
            }
            22 | 25 | 27 | 82 | 69 => self.clients[client].is_joined = false,
            other => panic!("a commit is answered by {other}"),
        }
        self.fetch(client);
    }

    fn fetch(&mut self, client: usize) {
        let groups = vec![
            Struct::new()
                .with("groupId", GROUP)
                .with("topics", Value::Null),
        ];
        let request = Struct::new().with("groups", groups);
        let response = self.reply(client, apis::OFFSET_FETCH.key, 9, &request);
        let group = structs(&response, "groups").next().unwrap();
        let found: HashMap<i32, i64> = structs(group, "topics")
            .flat_map(|topic| structs(topic, "partitions"))
            .map(|it| {
                (
                    int32(it, "partitionIndex"),
                    int(it, "committedOffset").unwrap(),
                )
            })
            .collect();
        assert_eq!(
            found, self.committed,
            "what was acknowledged and nothing else"
        );
    }

    fn leave(&mut self, client: usize) {
        let it = &self.clients[client];
        let members = vec![
            Struct::new()
                .with("memberId", it.member.clone())
                .with("groupInstanceId", it.instance.clone()),
        ];
        let request = Struct::new()
            .with("groupId", GROUP)
            .with("members", members);
        self.reply(client, apis::LEAVE_GROUP.key, 5, &request);
        self.look(client);
        let it = &mut self.clients[client];
        it.member.clear();
        it.is_joined = false;
    }

    /// All clients have gone: every waiting request is answered, and the group is empty.
    fn end(&mut self) {
        for client in 0..self.clients.len() {
            let waiting = self.clients[client].waiting.take();
            if let Some((ticket, ..)) = waiting {
                let bound = self.now + 10 * i64::from(SESSION_MS + REBALANCE_MS);
                let mut answer = self.coordinator.poll(ticket, self.now);
                while let Answer::Wait { until_ms, .. } = answer {
                    assert!(until_ms <= bound, "a request waits for ever");
                    self.now = self.now.max(until_ms);
                    answer = self.coordinator.poll(ticket, self.now);
                }
            }
        }
        let mut next = self.coordinator.tick(self.now);
        let mut turns = 0;
        while self
            .coordinator
            .lock()
            .groups
            .get(GROUP)
            .is_some_and(|group| !group.members.is_empty())
        {
            self.now = next;
            next = self.coordinator.tick(self.now);
            turns += 1;
            assert!(turns < 100, "members stay for ever");
        }
        assert_eq!(self.coordinator.waiting(), 0);
        // Without members only the groups that have offsets are counted.
        self.coordinator.tick(self.now + 10_000_000);
        let state = self.coordinator.lock();
        let left: u64 = state.groups.keys().map(|id| Group::bytes(id)).sum();
        assert_eq!(state.shared.member_bytes, left);
    }
}

/// Those of the histories, from `OFFSETLOG_SEED` on, and with `OFFSETLOG_SCALE` so many times more.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let first = number("OFFSETLOG_SEED").unwrap_or(0);
    first..first + HISTORIES * number("OFFSETLOG_SCALE").unwrap_or(1).max(1)
}

#[test]
fn random_histories_keep_every_promise() {
    let (mut accepted, mut assigned, mut rebalances) = (0, 0, 0);
    let seeds = seeds();
    println!(
        "counted {} histories of a group's members",
        seeds.end - seeds.start
    );
    for seed in seeds {
        let mut history = History::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                history.step();
            }
            history.end();
        }));
        if let Err(panic) = run {
            let last = history.events.len().saturating_sub(30);
            eprintln!("seed {seed}, the last of {}:", history.events.len());
            for event in &history.events[last..] {
                eprintln!("  {event}");
            }
            std::panic::resume_unwind(panic);
        }
        accepted += history.accepted;
        assigned += history.assigned;
        rebalances += history.rebalances;
    }
    // A test in which nobody gets anywhere proves nothing.
    eprintln!("{accepted} commits, {assigned} assignments, {rebalances} rebalances");
    assert!(
        accepted > 2000 && assigned > 1000 && rebalances > 1000,
        "{accepted} {assigned} {rebalances}"
    );
}
