//! Small graphs to be crashed.

use ferrata::{Approval, Ask, BuildError, Context, END, Graph, IntoNode, NodeError, Retry, START, View};

use super::crash_world::{Outside, Work};

pub(crate) fn one_node<A>(node: impl IntoNode<Work, A>) -> Result<Graph<Work>, BuildError> {
    Graph::<Work>::new("one").node("only", node).edge(START, "only").edge("only", END).build()
}

/// Two nodes in a row: one with an effect, one with an effect that may be repeated.
pub(crate) fn line(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let (one, two) = (outside.clone(), outside.clone());
    let first = move |s: View<Work>, ctx: Context| {
        let outside = one.clone();
        async move {
            ctx.effect("once", |_| async { Ok(outside.perform("once")) }).await?;
            Ok(Work::update().n(s.n + 1))
        }
    };
    let second = move |s: View<Work>, ctx: Context| {
        let outside = two.clone();
        async move {
            ctx.effect("often", |_| async { Ok(_ = outside.perform("often")) }).repeatable().await?;
            Ok(Work::update().n(s.n * 10))
        }
    };
    Graph::<Work>::new("line")
        .node("first", first)
        .node("second", second)
        .edge(START, "first")
        .edge("first", "second")
        .edge("second", END)
        .build()
}

/// Looks up, with a service that is busy at first; asks; pays.
pub(crate) fn refund(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let (service, bank) = (outside.clone(), outside.clone());
    let look_up = move |s: View<Work>, ctx: Context| {
        let service = service.clone();
        async move {
            let call = |_| async { if service.perform("call") == 1 { Err(NodeError::new("busy").transient()) } else { Ok(s.n) } };
            let n: u64 = ctx.effect("orders", call).repeatable().await?;
            Ok(Work::update().push_log(format!("looked up {n}")))
        }
    };
    let pay = move |s: View<Work>, ctx: Context| {
        let bank = bank.clone();
        async move {
            let pay = |_| async {
                // The line is dead the first time, which is known to have done no harm.
                if bank.perform("try") == 1 {
                    return Err(NodeError::new("no line").transient().not_performed());
                }
                tokio::time::sleep(std::time::Duration::from_secs(20)).await;
                Ok(bank.perform("pay"))
            };
            ctx.effect("pay", pay).await?;
            Ok(Work::update().push_log(format!("paid {}", s.n)))
        }
    };
    Graph::<Work>::new("refund")
        .node("look_up", look_up.retry(Retry::transient(3)))
        .question("approve", |s: &Work| Approval::ask(format!("Refund {}?", s.n)))
        .node("pay", pay.irreversible().retry(Retry::transient(3)))
        .edge(START, "look_up")
        .edge("look_up", "approve")
        .approved("approve", "pay")
        .rejected("approve", END)
        .edge("pay", END)
        .build()
}

/// A graph inside, in which mails are sent in parallel.
pub(crate) fn inner_parallel(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let outside = outside.clone();
    let send = move |n: u64, ctx: Context| {
        let outside = outside.clone();
        async move {
            let send = |_| async {
                // The later ones are faster.
                tokio::time::sleep(std::time::Duration::from_millis(10 * (3 - n))).await;
                Ok(_ = outside.perform(&format!("mail {n}")))
            };
            ctx.effect("mail", send).await?;
            Ok(Work::update().push_log(format!("sent {n}")))
        }
    };
    let inner = Graph::<Work>::new("inner")
        .node("list", || async { Ok(Work::update()) })
        .fan_out("list", "send", |s: &Work| 0..s.n)
        .node("send", send)
        .edge(START, "list")
        .edge("send", END)
        .build()?;
    Graph::<Work>::new("outer")
        .node("mails", inner.shared())
        .node("end", || async { Ok(Work::update().push_log("the end")) })
        .edge(START, "mails")
        .edge("mails", "end")
        .edge("end", END)
        .build()
}

/// A graph that counts and mails.
fn counting(outside: &Outside, name: &str) -> Result<Graph<Work>, BuildError> {
    let (outside, key) = (outside.clone(), format!("mail from {name}"));
    let count = |s: View<Work>| async move { Ok(Work::update().n(s.n + 1)) };
    let mail = move |ctx: Context| {
        let (outside, key) = (outside.clone(), key.clone());
        async move {
            let mails: u64 = ctx.effect(&key, |_| async { Ok(outside.perform(&key)) }).await?;
            Ok(Work::update().push_log(format!("mail {mails}")))
        }
    };
    Graph::<Work>::new(name)
        .node("count", count)
        .node("mail", mail)
        .edge(START, "count")
        .edge("count", "mail")
        .edge("mail", END)
        .build()
}

/// Graphs of every kind in a loop: one that keeps its state, one without stored steps, and one that is called by a node which then fails, once.
pub(crate) fn all_kinds(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let call = |s: View<Work>, ctx: Context| async move {
        let inner = ctx.call::<Work>("callable", Work::update().n(s.n)).await?;
        if ctx.attempt() == 1 {
            return Err(NodeError::new("not yet").transient());
        }
        Ok(Work::update().n(s.n + 1).push_log(format!("called: {}", inner.n)))
    };
    let into = |s: &Work| Work::update().n(s.n);
    let back = |_: &Work, inner: &Work| Work::update().push_log(format!("inside: {} {:?}", inner.n, inner.log));
    Graph::<Work>::new("all")
        .callable("callable", counting(outside, "callable")?)
        .node("continued", counting(outside, "continued")?.continued().mapped(into, back))
        .node("unstored", counting(outside, "unstored")?.unstored().mapped(into, back))
        .node("call", call.retry(Retry::transient(3)))
        .edge(START, "continued")
        .edge("continued", "unstored")
        .edge("unstored", "call")
        .route_to("call", ["continued", END], |s: &Work| if s.n < 2 { "continued" } else { END })
        .build()
}

/// An effect, a question, and an effect, in one node.
pub(crate) fn asking(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let outside = outside.clone();
    one_node(move |ctx: Context| {
        let outside = outside.clone();
        async move {
            let price: u64 = ctx.effect("price", |_| async { Ok(outside.perform("price")) }).await?;
            let seats = ctx.ask("seats", Ask::<u64>::new(format!("How many, for {price} each?"))).await?;
            ctx.effect("book", |_| async { Ok(outside.perform("book")) }).await?;
            Ok(Work::update().n(seats * price))
        }
    })
}
