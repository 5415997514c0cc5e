//! SPEC 3: what a runtime keeps of an attachment, from ADD to DEL.

use super::{from, rule};
use crate::finding::Stop;
use crate::rule::Source::{Relied, Spec};
use crate::rule::Versions;
use crate::runtime::judge::{Heard, Order};
use crate::runtime::look::{End, holds, order, previous, same};
use crate::runtime::{Case, Rule, Stand};
use testns::Verb::{Add, Check, Del};

pub(super) const RULES: &[Rule] = &[
    rule(
        "lifecycle.del-after-failed-add",
        Spec(&["lifecycle/del-follows"]),
        "DEL follows an ADD that failed: every plugin that ran is called with it, the last one first.",
        &[from("0.3.0", del_after_failed_add)],
    ),
    rule(
        "lifecycle.del-again-after-failed-del",
        Spec(&["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"]),
        "The result of ADD is kept until DEL succeeds: a DEL after one that failed has it still.",
        &[from("0.4.0", del_after_failed_del)],
    ),
    rule(
        "lifecycle.result-is-forgotten",
        Relied("plugins, which DEL an earlier container by its result"),
        "The result of ADD is forgotten with DEL: a next ADD and DEL of the container know nothing of it.",
        &[from("0.4.0", result_is_forgotten)],
    ),
    rule(
        "lifecycle.result-is-of-attachment",
        Spec(&["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"]),
        "The result that is kept is that of the container and interface, not one of the network.",
        &[from("0.4.0", result_is_of_attachment)],
    ),
    rule(
        "lifecycle.no-check-without-add",
        Spec(&["check/not-added"]),
        "CHECK is not called for what was not added, or was deleted.",
        &[
            Case { name: "never-added", versions: Versions::From("0.4.0"), run: check_of_nothing },
            Case { name: "deleted", versions: Versions::From("0.4.0"), run: check_after_del },
        ],
    ),
    rule(
        "lifecycle.del-twice",
        Relied("kubelet, which stops a pod more than once"),
        "DEL of what was deleted succeeds.",
        &[from("0.4.0", del_twice)],
    ),
    rule(
        "lifecycle.del-without-config",
        Relied("operators, who change or remove a network while containers run"),
        "DEL is done with the configuration of ADD, and so succeeds when the file of the network is gone.",
        &[from("0.4.0", del_without_config)],
    ),
];

fn del_after_failed_add(stand: &Stand) -> End {
    let fail = Order::fail(&stand.version, 142, "the judge will not");
    stand.lay(&stand.list(&[stand.judge(1), stand.judge_with(2, &[(Add, fail)]), stand.judge(3)]));
    let request = stand.request();
    stand.run(Add, &request)?.fails("its plugin did")?;
    // A runtime that rolls back has called DEL already, and may or may not do so again.
    stand.does(Del, &request)?;
    let mut places: Vec<_> = stand.heard_of(Del).iter().map(Heard::place).filter(|place| *place < 3).collect();
    let all = places.clone();
    places.truncate(2);
    holds(places == [2, 1], "DEL of plugin 2, then of plugin 1", format!("DEL was called for {all:?}"))
}

fn del_after_failed_del(stand: &Stand) -> End {
    let fail = Order::fail(&stand.version, 11, "try again");
    stand.lay(&stand.list(&[stand.judge(1), stand.judge_with(2, &[(Del, fail)])]));
    let request = stand.request();
    stand.does(Add, &request)?;
    let result = stand.heard().last().map(Heard::result).unwrap_or_default();
    stand.run(Del, &request)?.fails("its plugin did")?;
    stand.forget();
    stand.lay(&stand.list(&[stand.judge(1), stand.judge(2)]));
    stand.does(Del, &request)?;
    let heard = stand.heard();
    // With the configuration of ADD, plugin 2 fails once more; this one has no cause to.
    let first = heard.first().ok_or_else(|| Stop::Skips("it called no plugin".to_owned()))?;
    previous(first, &result)
}

fn result_is_forgotten(stand: &Stand) -> End {
    stand.lay(&stand.list(&[stand.judge(1)]));
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.does(Del, &request)?;
    stand.forget();
    stand.run(Del, &request)?;
    let stale: Vec<_> =
        stand.heard().iter().filter(|call| call.config().get("prevResult").is_some()).map(Heard::place).collect();
    same("places of plugins that got a prevResult with the second DEL", [0; 0].as_slice(), stale.as_slice())?;
    stand.lay(&stand.list(&[stand.judge(3)]));
    stand.forget();
    stand.does(Add, &request)?;
    let result = stand.heard().last().map(Heard::result).unwrap_or_default();
    stand.forget();
    stand.does(Del, &request)?;
    let heard = stand.heard();
    order(&heard, &[(Del, 3)])?;
    heard.iter().try_for_each(|call| previous(call, &result))
}

fn result_is_of_attachment(stand: &Stand) -> End {
    let (one, other) = (stand.request(), stand.request());
    stand.lay(&stand.list(&[stand.judge(1)]));
    stand.does(Add, &one)?;
    let result = stand.heard().last().map(Heard::result).unwrap_or_default();
    stand.does(Add, &other)?;
    stand.forget();
    stand.does(Del, &one)?;
    let heard = stand.heard();
    order(&heard, &[(Del, 1)])?;
    heard.iter().try_for_each(|call| previous(call, &result))
}

fn check_of_nothing(stand: &Stand) -> End {
    stand.works()?;
    stand.lay_three();
    stand.run(Check, &stand.request())?; // an error or a success, as it likes
    order(&stand.heard(), &[])
}

fn check_after_del(stand: &Stand) -> End {
    stand.lay_three();
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.does(Del, &request)?;
    stand.forget();
    stand.run(Check, &request)?;
    order(&stand.heard(), &[])
}

fn del_twice(stand: &Stand) -> End {
    stand.lay_three();
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.does(Del, &request)?;
    stand.does(Del, &request).map(|_| ())
}

fn del_without_config(stand: &Stand) -> End {
    stand.lay_three();
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.take_away();
    stand.forget();
    stand.does(Del, &request)?;
    order(&stand.heard(), &[(Del, 3), (Del, 2), (Del, 1)])
}
