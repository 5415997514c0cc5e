//! The kernel's answers about the ruleset, and the same written again.

use netops::fuzzing::nft_encoded;
use netops::nft::{
    Body, Change, Element, ElementInfo, Family, KeyField, KeyType, Name, RuleInfo, Set, Table, Transaction,
    parse_replies,
};

/// The bytes of one read.
pub fn nft_replies(data: &[u8]) {
    let replies = parse_replies(data);
    assert!(replies.len() <= data.len() / 16);
    for reply in replies {
        match reply.body {
            Body::Rule(rule) => rule_is_kept(rule),
            Body::Elements(elements) => elements.into_iter().for_each(element_is_kept),
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

/// A comment that is too long for its field is cut at its end.
fn is_cut(back: Option<String>, comment: Option<String>) {
    assert_eq!(back.is_some(), comment.is_some());
    let (back, comment) = (back.unwrap_or_default(), comment.unwrap_or_default());
    assert!(comment.starts_with(&back) && (back == comment || back.len() > 250), "{back:?} of {comment:?}");
}

/// A key is of a set's type or of none, and the element can be named to the kernel again.
fn element_is_kept(element: ElementInfo) {
    const KEYS: [&[KeyType]; 5] =
        [&[KeyType::Ip4], &[KeyType::Ip6], &[KeyType::Mac], &[KeyType::IfName], &[KeyType::IfName, KeyType::Mac]];
    for key in KEYS {
        let table = Table::new(Family::Inet, "t");
        let set = Set { table, name: Name::Borrowed("s"), key, is_verdict_map: true };
        let Some(named) = element.clone().of(&set) else { continue };
        assert_eq!(named.key.len(), key.len());
        assert!(!named.to_string().is_empty());
        let Some(Body::Elements(mut back)) = read_back(Change::CreateElement(named.clone())) else { continue };
        assert_eq!(back.len(), 1);
        let back = back.remove(0);
        is_cut(back.comment.clone(), named.comment.clone());
        let back = back.of(&set).expect("our own key is of the set's type");
        let is_name = |field: &KeyField| !matches!(field, KeyField::IfName(name) if name.contains('\u{fffd}'));
        if named.key.iter().all(is_name) {
            assert_eq!(back, Element { comment: back.comment.clone(), ..named });
        }
    }
}
