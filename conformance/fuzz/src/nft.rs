//! The kernel's answers about the ruleset, and the same written again.

use netops::fuzzing::nft_encoded;
use netops::nft::{Body, Change, Element, Family, RuleInfo, Transaction, parse_replies};

/// The bytes of one read.
pub fn nft_replies(data: &[u8]) {
    let replies = parse_replies(data);
    assert!(replies.len() <= data.len() / 16);
    for reply in replies {
        match reply.body {
            Body::Rule(rule) => rule_is_kept(rule),
            Body::Elements(all) => all.into_iter().for_each(element_is_kept),
            Body::Ack
            | Body::Refused { .. }
            | Body::Done
            | Body::Table(_)
            | Body::Chain(_)
            | Body::Generation(_)
            | Body::Other(_) => {}
        }
    }
}

/// The message that makes this change, read as if the kernel had sent it.
fn read_back(change: Change) -> Option<Body> {
    // Parts that a length field cannot say are refused.
    let bytes = nft_encoded(&Transaction::new(vec![change]), 7)?;
    let mut replies = parse_replies(&bytes);
    assert_eq!(replies.iter().map(|reply| reply.seq).collect::<Vec<_>>(), [7, 8, 9], "begin, change, end");
    Some(replies.swap_remove(1).body)
}

/// Nothing of a rule gets lost on the way to the kernel, known expressions or not.
fn rule_is_kept(rule: RuleInfo) {
    for expr in &rule.exprs {
        assert!(expr.to_string().starts_with("[ "));
    }
    for family in [Family::Ip, Family::Ip6] {
        let says = cni_filter::fuzzing::nft_rule(&rule.clone().of(family)).map(|rule| rule.to_string());
        assert!(says.is_none_or(|text| !text.contains('\n')));
    }
    let sent = rule.clone().of(Family::Ip);
    let Some(Body::Rule(back)) = read_back(Change::AppendRule(sent)) else { return };
    assert_eq!((&back.table, &back.chain, &back.exprs), (&rule.table, &rule.chain, &rule.exprs));
    is_cut(back.comment, rule.comment);
}

/// Nothing of an element gets lost on the way to the kernel.
fn element_is_kept(element: Element) {
    let Some(Body::Elements(back)) = read_back(Change::AddElement(element.clone())) else { return };
    let [back] = &back[..] else { panic!("{back:?}") };
    assert_eq!((&back.set, &back.key, &back.data), (&element.set, &element.key, &element.data));
    is_cut(back.comment.clone(), element.comment);
}

/// A comment that is too long for its field is cut at its end.
fn is_cut(back: Option<String>, comment: Option<String>) {
    assert_eq!(back.is_some(), comment.is_some());
    let (back, comment) = (back.unwrap_or_default(), comment.unwrap_or_default());
    assert!(comment.starts_with(&back) && (back == comment || back.len() > 250), "{back:?} of {comment:?}");
}
