//! Input of the other plugins: bridge's keys, noop's control file, variables, rules that iptables saved.

use crate::invariants;
use bridge::conf::{Conf, Removal};
use bridge::gateways::address_changes;
use bridge::plan::{self, Own, Plan};
use cni_filter::iptables::rule::{self, Rule};
use cni_filter::{Names, fuzzing};
use cni_spec::{ConfObject, FromAnyConf, FromConf, IfName, SpecVersion, json};
use interface::Step;
use noop::control::Control;
use skel::env::Environment;

/// Bridge's network config, and the plan it gives with its own `prevResult` as the lease.
pub fn bridge_conf(data: &[u8]) {
    let Ok(object) = ConfObject::parse(data) else { return };
    let removal = Removal::from_any_conf(&object);
    let conf = match Conf::from_conf(&object) {
        Ok(conf) => conf,
        Err(error) => return invariants::is_sound(&error),
    };
    assert_eq!(
        removal.bridge.map(|name| name.to_string()),
        Some(conf.bridge.clone()),
        "what ADD uses is what DEL finds"
    );
    let members = conf.vlans.iter().flat_map(|vlans| &vlans.member_of);
    members.for_each(|vlans| assert!(1 <= vlans.first && vlans.first <= vlans.last && vlans.last <= 4094));
    let attachment = cni_spec::Attachment::parse(object.name().as_str(), "c1", "eth0").expect("they are valid names");
    for lease in [None, object.prev_result(SpecVersion::LATEST).ok().flatten()] {
        match plan::plan(&conf, &attachment, conf.mac, lease) {
            Ok(plan) => plan_holds(&plan),
            Err(error) => invariants::is_sound(&error),
        }
    }
}

fn plan_holds(plan: &Plan) {
    let shared = plan.steps.iter().find_map(|step| match step {
        Step::Own(Own::Shared(shared)) => Some(shared),
        _ => None,
    });
    let shared = shared.expect("every plan has the bridge");
    let names = [&shared.bridge.name, &plan.names.host, &shared.gateways.holder];
    names.into_iter().for_each(|name| assert!(IfName::parse(name).is_ok(), "{name:?} is no interface's name"));
    assert!(!plan.to_string().is_empty());
    // Nothing to do where all is there, and everything where nothing is.
    let wanted = &shared.gateways.addresses;
    let nothing = address_changes("cni0", wanted, wanted, false).expect("nothing is in the way");
    assert!(nothing.add.is_empty() && nothing.delete.is_empty());
    let all = address_changes("cni0", &[], wanted, false).expect("nothing is in the way");
    assert_eq!(all.add, *wanted);
}

/// noop's control file.
pub fn control_file(data: &[u8]) {
    let control = match Control::parse("/control", data) {
        Ok(control) => control,
        Err(error) => return invariants::is_sound(&error),
    };
    let written = json::to_text(&control);
    assert_eq!(Control::parse("/control", written.as_bytes()).as_ref(), Ok(&control));
    assert_eq!(control.error().is_err(), !control.report_error.is_empty());
    assert!(control.exit_with_code > 0 || control.exit_status() == 0);
}

/// The variables: command, container, namespace, interface, arguments and path, a line each.
pub fn environment(data: &[u8]) {
    let text = invariants::text(data);
    let mut lines = text.split('\n').map(str::to_owned);
    let mut next = || lines.next().unwrap_or_default();
    let env = Environment {
        command: next(),
        container_id: next(),
        netns: next(),
        ifname: next(),
        args: next(),
        path: next(),
        netns_override: next(),
        search_path: next(),
        not_utf8: Vec::new(),
    };
    let command = env.find_command();
    assert_eq!(command.map(|command| command.as_str()), Some(&*env.command).filter(|_| command.is_some()));
    match env.check(command) {
        Ok(()) if ["ADD", "DEL", "CHECK"].contains(&&*env.command) => {
            invariants::stays_in_its_folder(&env.container_id);
            invariants::stays_in_its_folder(&env.ifname);
        }
        Ok(()) => assert!(!env.command.is_empty()),
        Err(error) => invariants::is_sound(&error),
    }
    assert!(env.plugin_path().dirs().iter().all(|dir| !dir.as_os_str().is_empty()));
    assert!(!env.overrides_netns() || ["1", "true"].contains(&&*env.netns_override.to_ascii_lowercase()));
}

/// The output of `iptables-save`, after a line with the comment of a rule of ours.
pub fn iptables_save(data: &[u8]) {
    let text = &*invariants::text(data);
    let comment = text.lines().next().unwrap_or_default();
    quoting_has_no_way_out(comment);
    let own = Names { network: comment, container: text, ifname: "eth0" };
    let (written, is_own) = fuzzing::comment(own);
    assert!(is_own && written.len() <= 128 && fuzzing::key_of(&written).is_some());
    for line in text.lines() {
        let Some(rule) = fuzzing::saved_rule(line) else { continue };
        // The rule goes behind `-A ` into a restore: never more than one line, and read back it is the same rule.
        let written = format!("CHAIN{rule}");
        assert!(!written.contains(['\n', '\r']));
        let comment = rule.comment.as_ref().map(|comment| comment.replace(char::is_control, " "));
        assert_eq!(fuzzing::saved_rule(&written), Some(Rule { comment, ..rule }), "{written}");
    }
}

/// Whatever a name has in it, restore reads one word of comment and nothing else.
fn quoting_has_no_way_out(comment: &str) {
    let kept = rule::comment(comment);
    assert!(kept.len() <= 255);
    let rule = Rule { comment: Some(kept.clone()), ..Rule::default() };
    let words = fuzzing::words(&rule.to_string());
    assert_eq!(words, ["-m", "comment", "--comment", &*kept]);
}
