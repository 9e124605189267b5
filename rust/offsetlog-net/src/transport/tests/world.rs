//! A seeded scheduler: one thread goes on at a time, and time passes when none can.

use super::super::clock::{Clock, Turned};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When a world begins, in milliseconds since 1970.
pub(super) const BEGIN_MS: i64 = 1_800_000_000_000;
/// Longer than any test lasts.
pub(super) const FOR_EVER: Duration = Duration::from_secs(1 << 30);

thread_local! {
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Threads that go on one at a time, in the order of a seed, and their clock.
pub(super) struct World {
    begin: Instant,
    state: Mutex<State>,
    /// Wakes whoever runs the world.
    over: Condvar,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// What is due by time alone. It is given the time, and says when it is due again and whether it did anything that others wait for.
type Tick = Box<dyn FnMut(i64) -> (i64, bool) + Send>;

struct State {
    now: Duration,
    random: fastrand::Rng,
    actors: Vec<Actor>,
    threads: Vec<JoinHandle<()>>,
    /// Whose turn it is.
    running: Option<usize>,
    tick: Option<Tick>,
    next_tick: Duration,
    is_over: bool,
    failed: Option<String>,
}

struct Actor {
    stands: Stands,
    woken: Arc<Condvar>,
    /// It has looked, since anything that it waits for may have changed, and must wait on.
    looked: bool,
}

/// What a thread waits for: a wire, by its number, or anything at all.
type On = Option<usize>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Ready,
    /// Until this time; it may be asked to look again before.
    Waiting(Duration, On),
    /// Until this time, whatever happens.
    Sleeping(Duration),
    Done,
}

impl State {
    fn wake(&mut self, on: On) {
        let waits = |actor: &Actor| matches!(actor.stands, Stands::Waiting(_, its) if its == on);
        for actor in self.actors.iter_mut().filter(|actor| waits(actor)) {
            actor.looked = false;
        }
    }

    /// Who goes on now, if anybody can.
    fn choose(&mut self) -> Option<usize> {
        let now = self.now;
        let can_go = |actor: &Actor| match actor.stands {
            Stands::Ready => true,
            Stands::Waiting(until, _) => until <= now || !actor.looked,
            Stands::Sleeping(until) => until <= now,
            Stands::Done => false,
        };
        let who = 0..self.actors.len();
        let who: Vec<usize> = who.filter(|&it| can_go(&self.actors[it])).collect();
        self.random.choice(who)
    }

    /// When something is due next.
    fn next(&self) -> Duration {
        let times = self.actors.iter().filter_map(|actor| match actor.stands {
            Stands::Waiting(until, _) | Stands::Sleeping(until) => Some(until),
            Stands::Ready | Stands::Done => None,
        });
        times
            .min()
            .map_or(FOR_EVER, |time| time)
            .min(self.next_tick)
    }

    fn is_done(&self) -> bool {
        self.actors.iter().all(|it| it.stands == Stands::Done)
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            state: Mutex::new(State {
                now: Duration::ZERO,
                random: fastrand::Rng::with_seed(seed),
                actors: Vec::new(),
                threads: Vec::new(),
                running: None,
                tick: None,
                next_tick: FOR_EVER,
                is_over: false,
                failed: None,
            }),
            over: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Time since the world began.
    pub(super) fn time(&self) -> Duration {
        self.lock().now
    }

    /// A number below this.
    pub(super) fn random(&self, below: usize) -> usize {
        self.lock().random.usize(..below)
    }

    /// Adds a thread. It goes on when it is chosen.
    pub(super) fn begin(self: &Arc<Self>, run: impl FnOnce() + Send + 'static) {
        let world = Arc::clone(self);
        let mut state = self.lock();
        let me = state.actors.len();
        state.actors.push(Actor {
            stands: Stands::Ready,
            woken: Arc::default(),
            looked: false,
        });
        state.threads.push(std::thread::spawn(move || {
            ME.set(Some(me));
            drop(Self::wait_for_turn(me, world.lock()));
            let ended = catch_unwind(AssertUnwindSafe(run));
            let mut state = world.lock();
            if let Err(panic) = ended {
                let words = super::super::connection::words_of(&*panic);
                state.failed.get_or_insert(words);
            }
            drop(world.give_back(me, Stands::Done, state));
        }));
    }

    fn wait_for_turn(me: usize, mut state: MutexGuard<'_, State>) -> MutexGuard<'_, State> {
        let woken = Arc::clone(&state.actors[me].woken);
        while state.running != Some(me) {
            state = woken.wait(state).unwrap();
        }
        state
    }

    fn give_back<'a>(
        &'a self,
        me: usize,
        stands: Stands,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        // Whoever only looked and waits on has done nothing that another could wait for.
        let is_look = state.actors[me].stands == stands && matches!(stands, Stands::Waiting(..));
        if !is_look {
            state.wake(None);
        }
        let actor = &mut state.actors[me];
        actor.stands = stands;
        actor.looked = true;
        self.hand_on(state)
    }

    /// Gives the turn to whoever can go on. If nobody can, time passes until somebody can.
    fn hand_on<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.running = None;
        while !state.is_over {
            if state.now >= state.next_tick
                && let Some(mut tick) = state.tick.take()
            {
                let now_ms = wall_ms(state.now);
                drop(state);
                let (next_ms, is_moved) = tick(now_ms);
                state = self.lock();
                state.tick = Some(tick);
                let next_ms = u64::try_from(next_ms - BEGIN_MS).unwrap_or(0);
                let earliest = state.now + Duration::from_millis(1);
                state.next_tick = Duration::from_millis(next_ms).max(earliest);
                if is_moved {
                    state.wake(None);
                }
            } else if let Some(chosen) = state.choose() {
                state.running = Some(chosen);
                state.actors[chosen].woken.notify_all();
                return state;
            } else if state.is_done() {
                state.is_over = true;
            } else {
                let next = state.next();
                if next >= FOR_EVER / 2 {
                    state.failed.get_or_insert("all wait for ever".to_owned());
                    state.is_over = true;
                }
                state.now = next;
            }
        }
        self.over.notify_all();
        state
    }

    fn stand(&self, how: impl FnOnce(Duration) -> Stands) {
        let Some(me) = ME.get() else {
            panic!("only a thread of the world waits in it");
        };
        let state = self.lock();
        let how = how(state.now);
        let state = self.give_back(me, how, state);
        drop(Self::wait_for_turn(me, state));
    }

    /// Something has changed on a wire.
    pub(super) fn touch(&self, wire: usize) {
        self.lock().wake(Some(wire));
    }

    /// Something has changed that anybody may wait for.
    pub(super) fn touch_all(&self) {
        self.lock().wake(None);
    }

    /// Waits for a wire, for this long at most.
    pub(super) fn wait_on(&self, wire: usize, at_most: Duration) {
        self.stand(|now| Stands::Waiting(now + at_most, Some(wire)));
    }

    /// Lets others go first, perhaps.
    pub(super) fn step(&self) {
        if self.random(4) == 0 {
            self.stand(|_| Stands::Ready);
        }
    }

    /// Runs all threads to their end.
    ///
    /// # Panics
    /// If one did, or if all wait for ever.
    pub(super) fn run(&self, tick: Tick) {
        let mut state = self.lock();
        state.tick = Some(tick);
        state.next_tick = Duration::ZERO;
        state = self.hand_on(state);
        while !state.is_over {
            state = self.over.wait(state).unwrap();
        }
        let threads = std::mem::take(&mut state.threads);
        let failed = state.failed.take();
        let is_done = state.is_done();
        state.tick = None;
        drop(state);
        // Those that wait for ever are left to themselves.
        for thread in threads.into_iter().filter(|_| is_done) {
            thread.join().unwrap();
        }
        if let Some(words) = failed {
            panic!("{words}");
        }
    }
}

fn wall_ms(since: Duration) -> i64 {
    BEGIN_MS + i64::try_from(since.as_millis()).unwrap()
}

impl Clock for World {
    fn now(&self) -> Instant {
        self.begin + self.time()
    }

    fn wall_ms(&self) -> i64 {
        wall_ms(self.time())
    }

    fn sleep(&self, time: Duration) {
        self.stand(|now| Stands::Sleeping(now + time));
    }

    fn turned(&self) -> Option<&dyn Turned> {
        Some(self)
    }
}

impl Turned for World {
    fn pass(&self, at_most: Duration) {
        self.stand(|now| Stands::Waiting(now + at_most, None));
    }
}
