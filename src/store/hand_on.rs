//! What a store around another one hands on.

/// Hands on what a [`Store`](crate::store::Store) around another one does not do its own way: `load`, `threads`, `questions`, `alarms`, `note`,
/// `keep_note`, `notes`, `delete`, `restore`, `prune`, `resource` and `keep_resource`. It stands in the `impl` and names the field that holds the inner store; behind a semicolon, only
/// those that it is to hand on: `hand_on_store!(inner; load, threads)`. `append` is left to the outer one, and with it
/// `append_here`, which hands every append back to it; so is `at_work`.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use ferrata::store::{Append, Appended, AtWork, MemoryStore, Pending, Store};
///
/// /// Counts the records that are appended.
/// #[derive(Debug, Default)]
/// struct Counting { inner: MemoryStore, records: Arc<AtomicUsize> }
///
/// impl Store for Counting {
///     ferrata::hand_on_store!(inner);
///
///     fn append(&self, append: Append) -> Pending<'_, Appended> {
///         self.records.fetch_add(append.records.len(), Ordering::SeqCst);
///         self.inner.append(append)
///     }
///
///     fn at_work(&self) -> Option<&AtWork> {
///         self.inner.at_work()
///     }
/// }
/// # use ferrata::{END, Graph, Runner, START, State, View};
/// # #[derive(State, serde::Serialize, serde::Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Count { n: u64 }
/// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
/// let store = Counting::default();
/// let records = Arc::clone(&store.records);
/// let runner = Runner::new(graph, store);
/// runner.thread("t").run(Count::update()).await?;
/// assert_eq!(records.load(Ordering::SeqCst), runner.thread("t").log().await?.len());
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! hand_on_store {
    (@load ($($inner:tt)+)) => {
        fn load<'a>(
            &'a self,
            thread: &'a $crate::store::ThreadName,
            reach: $crate::store::Reach,
        ) -> $crate::store::Pending<'a, $crate::store::Loaded> {
            $crate::store::Store::load(&self.$($inner)+, thread, reach)
        }
    };
    (@threads ($($inner:tt)+)) => {
        fn threads<'a>(
            &'a self,
            query: &'a $crate::store::ThreadQuery,
        ) -> $crate::store::Pending<'a, ::std::vec::Vec<$crate::store::ThreadInfo>> {
            $crate::store::Store::threads(&self.$($inner)+, query)
        }
    };
    (@questions ($($inner:tt)+)) => {
        fn questions<'a>(
            &'a self,
            query: &'a $crate::store::InboxQuery,
        ) -> $crate::store::Pending<'a, ::std::vec::Vec<$crate::store::InboxRow>> {
            $crate::store::Store::questions(&self.$($inner)+, query)
        }
    };
    (@alarms ($($inner:tt)+)) => {
        fn alarms<'a>(
            &'a self,
            behind: ::std::option::Option<&'a $crate::store::AlarmRow>,
            most: usize,
        ) -> $crate::store::Pending<'a, ::std::vec::Vec<$crate::store::AlarmRow>> {
            $crate::store::Store::alarms(&self.$($inner)+, behind, most)
        }
    };
    (@note ($($inner:tt)+)) => {
        fn note<'a>(
            &'a self,
            key: &'a str,
        ) -> $crate::store::Pending<'a, ::std::option::Option<::std::vec::Vec<u8>>> {
            $crate::store::Store::note(&self.$($inner)+, key)
        }
    };
    (@keep_note ($($inner:tt)+)) => {
        fn keep_note<'a>(
            &'a self,
            key: &'a str,
            note: ::std::option::Option<&'a [u8]>,
        ) -> $crate::store::Pending<'a, ()> {
            $crate::store::Store::keep_note(&self.$($inner)+, key, note)
        }
    };
    (@notes ($($inner:tt)+)) => {
        fn notes<'a>(
            &'a self,
            prefix: &'a str,
            behind: ::std::option::Option<&'a str>,
            most: usize,
        ) -> $crate::store::Pending<'a, ::std::vec::Vec<::std::string::String>> {
            $crate::store::Store::notes(&self.$($inner)+, prefix, behind, most)
        }
    };
    (@delete ($($inner:tt)+)) => {
        fn delete<'a>(&'a self, thread: &'a $crate::store::ThreadName) -> $crate::store::Pending<'a, bool> {
            $crate::store::Store::delete(&self.$($inner)+, thread)
        }
    };
    (@restore ($($inner:tt)+)) => {
        fn restore(&self, restore: $crate::store::Restore) -> $crate::store::Pending<'_, ()> {
            $crate::store::Store::restore(&self.$($inner)+, restore)
        }
    };
    (@prune ($($inner:tt)+)) => {
        fn prune(&self, prune: $crate::store::Prune) -> $crate::store::Pending<'_, $crate::store::Pruned> {
            $crate::store::Store::prune(&self.$($inner)+, prune)
        }
    };
    (@resource ($($inner:tt)+)) => {
        fn resource<'a>(
            &'a self,
            name: &'a str,
        ) -> $crate::store::Pending<'a, ::std::option::Option<$crate::store::ResourceKept>> {
            $crate::store::Store::resource(&self.$($inner)+, name)
        }
    };
    (@keep_resource ($($inner:tt)+)) => {
        fn keep_resource<'a>(
            &'a self,
            name: &'a str,
            kept: &'a $crate::store::ResourceKept,
        ) -> $crate::store::Pending<'a, ()> {
            $crate::store::Store::keep_resource(&self.$($inner)+, name, kept)
        }
    };
    (@each $inner:tt $($method:ident)+) => {
        $($crate::hand_on_store!(@$method $inner);)+
    };
    ($($inner:tt).+; $($method:ident),+) => {
        $crate::hand_on_store!(@each ($($inner).+) $($method)+);
    };
    ($($inner:tt).+) => {
        $crate::hand_on_store!(
            $($inner).+; load, threads, questions, alarms, note, keep_note, notes, delete, restore, prune, resource, keep_resource
        );
    };
}
