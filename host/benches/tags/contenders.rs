//! Those that are compared: each gives tags below the depth to threads that wait for them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use crossbeam_queue::ArrayQueue;
use fairlift::tags::{Caller, Settings, TagQueue};
use fairlift_core::Tag;
use fairlift_core::tags::{Bitmap, Hint};

use super::two_step::TwoStep;

/// Gives out tags.
pub(crate) trait Contender: Send + Sync + 'static {
    /// What each thread keeps to itself.
    type Me: Send;

    /// As many as `depth`.
    fn new(depth: usize) -> Self;
    fn me(&self, thread: usize) -> Self::Me;
    fn try_get(&self, me: &mut Self::Me) -> Option<u16>;
    fn get(&self, me: &mut Self::Me) -> u16;
    fn put(&self, tag: u16);
}

/// Gives out tags to tasks too.
pub(crate) trait ToTasks: Contender {
    fn acquire(&self, me: &mut Self::Me) -> impl Future<Output = u16> + Send;
}

impl ToTasks for Ours {
    async fn acquire(&self, me: &mut Caller) -> u16 {
        me.acquire().await.0
    }
}

impl ToTasks for AsyncLock {
    async fn acquire(&self, (): &mut ()) -> u16 {
        self.semaphore.acquire().await.forget();
        self.free.pop().unwrap()
    }
}

impl ToTasks for Tokio {
    async fn acquire(&self, (): &mut ()) -> u16 {
        self.semaphore.acquire().await.unwrap().forget();
        self.free.pop().unwrap()
    }
}

/// This one.
pub(crate) struct Ours(Arc<TagQueue>);

impl Contender for Ours {
    type Me = Caller;

    fn new(depth: usize) -> Self {
        Self(TagQueue::new(Settings::new(depth)).unwrap())
    }

    fn me(&self, _thread: usize) -> Caller {
        self.0.caller()
    }

    fn try_get(&self, me: &mut Caller) -> Option<u16> {
        me.try_get_in_turn().map(|tag| tag.0)
    }

    fn get(&self, me: &mut Caller) -> u16 {
        me.get().0
    }

    fn put(&self, tag: u16) {
        self.0.put(Tag(tag));
    }
}

/// This one, shared by twenty users, each assured its part: the seed's second experiment.
pub(crate) struct Shared {
    tags: Arc<TagQueue>,
    /// Who holds each tag.
    users: Box<[AtomicUsize]>,
}

const USERS: usize = 20;

impl Contender for Shared {
    type Me = (usize, Caller);

    fn new(depth: usize) -> Self {
        let tags = TagQueue::new(Settings { users: USERS, ..Settings::new(depth) }).unwrap();
        Self { tags, users: (0..depth).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn me(&self, thread: usize) -> (usize, Caller) {
        (thread % USERS, self.tags.caller_of(thread % USERS))
    }

    fn try_get(&self, (user, caller): &mut (usize, Caller)) -> Option<u16> {
        let tag = caller.try_get_in_turn()?.0;
        self.users[usize::from(tag)].store(*user, SeqCst);
        Some(tag)
    }

    fn get(&self, (user, caller): &mut (usize, Caller)) -> u16 {
        let tag = caller.get().0;
        self.users[usize::from(tag)].store(*user, SeqCst);
        tag
    }

    fn put(&self, tag: u16) {
        self.tags.put_of(self.users[usize::from(tag)].load(SeqCst), Tag(tag));
    }
}

/// The bitmap alone, with nothing to wait with.
pub(crate) struct Bare(Bitmap);

impl Contender for Bare {
    type Me = Hint;

    fn new(depth: usize) -> Self {
        Self(Bitmap::new(depth).unwrap())
    }

    fn me(&self, thread: usize) -> Hint {
        Hint::of(thread)
    }

    fn try_get(&self, me: &mut Hint) -> Option<u16> {
        self.0.get(me).map(|tag| tag.0)
    }

    fn get(&self, me: &mut Hint) -> u16 {
        loop {
            if let Some(tag) = self.try_get(me) {
                return tag;
            }
            std::thread::yield_now();
        }
    }

    fn put(&self, tag: u16) {
        self.0.put(Tag(tag));
    }
}

/// The bitmap, and waking as it was before 2022.
impl Contender for TwoStep {
    type Me = Hint;

    fn new(depth: usize) -> Self {
        Self::new(depth)
    }

    fn me(&self, thread: usize) -> Hint {
        Hint::of(thread)
    }

    fn try_get(&self, me: &mut Hint) -> Option<u16> {
        self.try_get(me).map(|tag| tag.0)
    }

    fn get(&self, me: &mut Hint) -> u16 {
        self.get(me).0
    }

    fn put(&self, tag: u16) {
        self.put(Tag(tag));
    }
}

/// Crate `sbitmap`, which has nothing to wait with, and a condition variable.
pub(crate) struct CrateSbitmap {
    map: sbitmap::Sbitmap,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Contender for CrateSbitmap {
    type Me = usize;

    fn new(depth: usize) -> Self {
        let map = sbitmap::Sbitmap::new(depth, None, false);
        Self { map, waiting: AtomicUsize::new(0), lock: Mutex::new(()), bell: Condvar::new() }
    }

    fn me(&self, thread: usize) -> usize {
        thread % self.map.depth()
    }

    fn try_get(&self, me: &mut usize) -> Option<u16> {
        self.map.get(me).map(|tag| tag as u16)
    }

    fn get(&self, me: &mut usize) -> u16 {
        if let Some(tag) = self.try_get(me) {
            return tag;
        }
        let mut guard = self.lock.lock().unwrap();
        self.waiting.fetch_add(1, SeqCst);
        let tag = loop {
            if let Some(tag) = self.try_get(me) {
                break tag;
            }
            guard = self.bell.wait(guard).unwrap();
        };
        self.waiting.fetch_sub(1, SeqCst);
        tag
    }

    fn put(&self, tag: u16) {
        self.map.put(usize::from(tag), &mut 0);
        if self.waiting.load(SeqCst) > 0 {
            drop(self.lock.lock().unwrap());
            self.bell.notify_one();
        }
    }
}

/// A list of free tags under a lock, and a condition variable.
pub(crate) struct MutexVec {
    free: Mutex<Vec<u16>>,
    bell: Condvar,
}

impl Contender for MutexVec {
    type Me = ();

    fn new(depth: usize) -> Self {
        Self { free: Mutex::new((0..depth as u16).collect()), bell: Condvar::new() }
    }

    fn me(&self, _thread: usize) {}

    fn try_get(&self, (): &mut ()) -> Option<u16> {
        self.free.lock().unwrap().pop()
    }

    fn get(&self, (): &mut ()) -> u16 {
        let mut free = self.free.lock().unwrap();
        loop {
            if let Some(tag) = free.pop() {
                return tag;
            }
            free = self.bell.wait(free).unwrap();
        }
    }

    fn put(&self, tag: u16) {
        self.free.lock().unwrap().push(tag);
        self.bell.notify_one();
    }
}

/// crossbeam's `ArrayQueue` of free tags; who finds none parks, and is unparked by whoever puts one back.
pub(crate) struct ArrayPark {
    free: ArrayQueue<u16>,
    waiting: AtomicUsize,
    parked: Mutex<std::collections::VecDeque<(std::thread::Thread, Arc<AtomicU32>)>>,
}

impl Contender for ArrayPark {
    type Me = Arc<AtomicU32>;

    fn new(depth: usize) -> Self {
        let free = ArrayQueue::new(depth);
        (0..depth as u16).for_each(|tag| free.push(tag).unwrap());
        Self { free, waiting: AtomicUsize::new(0), parked: Mutex::default() }
    }

    fn me(&self, _thread: usize) -> Arc<AtomicU32> {
        Arc::default()
    }

    fn try_get(&self, _me: &mut Arc<AtomicU32>) -> Option<u16> {
        self.free.pop()
    }

    fn get(&self, me: &mut Arc<AtomicU32>) -> u16 {
        loop {
            if let Some(tag) = self.free.pop() {
                return tag;
            }
            me.store(0, SeqCst);
            self.parked.lock().unwrap().push_back((std::thread::current(), Arc::clone(me)));
            self.waiting.fetch_add(1, SeqCst);
            if let Some(tag) = self.free.pop() {
                let mut parked = self.parked.lock().unwrap();
                match parked.iter().position(|(_, other)| Arc::ptr_eq(other, me)) {
                    Some(place) => {
                        parked.remove(place);
                        self.waiting.fetch_sub(1, SeqCst);
                    }
                    None => {
                        drop(parked);
                        self.wake();
                    }
                }
                return tag;
            }
            while me.load(SeqCst) == 0 {
                std::thread::park();
            }
        }
    }

    fn put(&self, tag: u16) {
        self.free.push(tag).unwrap();
        self.wake();
    }
}

impl ArrayPark {
    fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            let first = self.parked.lock().unwrap().pop_front();
            if let Some((thread, woken)) = first {
                self.waiting.fetch_sub(1, SeqCst);
                woken.store(1, SeqCst);
                thread.unpark();
            }
        }
    }
}

/// `async-lock`'s semaphore and an `ArrayQueue` of tags.
pub(crate) struct AsyncLock {
    semaphore: async_lock::Semaphore,
    free: ArrayQueue<u16>,
}

impl Contender for AsyncLock {
    type Me = ();

    fn new(depth: usize) -> Self {
        let free = ArrayQueue::new(depth);
        (0..depth as u16).for_each(|tag| free.push(tag).unwrap());
        Self { semaphore: async_lock::Semaphore::new(depth), free }
    }

    fn me(&self, _thread: usize) {}

    fn try_get(&self, (): &mut ()) -> Option<u16> {
        self.semaphore.try_acquire()?.forget();
        self.free.pop()
    }

    fn get(&self, (): &mut ()) -> u16 {
        self.semaphore.acquire_blocking().forget();
        self.free.pop().unwrap()
    }

    fn put(&self, tag: u16) {
        self.free.push(tag).unwrap();
        self.semaphore.add_permits(1);
    }
}

/// tokio's semaphore and an `ArrayQueue` of tags.
pub(crate) struct Tokio {
    semaphore: tokio::sync::Semaphore,
    free: ArrayQueue<u16>,
}

impl Contender for Tokio {
    type Me = ();

    fn new(depth: usize) -> Self {
        let free = ArrayQueue::new(depth);
        (0..depth as u16).for_each(|tag| free.push(tag).unwrap());
        Self { semaphore: tokio::sync::Semaphore::new(depth), free }
    }

    fn me(&self, _thread: usize) {}

    fn try_get(&self, (): &mut ()) -> Option<u16> {
        self.semaphore.try_acquire().ok()?.forget();
        self.free.pop()
    }

    fn get(&self, (): &mut ()) -> u16 {
        super::block_on(self.semaphore.acquire()).unwrap().forget();
        self.free.pop().unwrap()
    }

    fn put(&self, tag: u16) {
        self.free.push(tag).unwrap();
        self.semaphore.add_permits(1);
    }
}
