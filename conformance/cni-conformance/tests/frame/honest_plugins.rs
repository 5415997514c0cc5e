//! Honest plugins of other makes, in shell and Python: nothing of them is a finding. Each was accused once.

use crate::run_kit::{Bin, HONEST, Said, kit, plugin, say, sum};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

#[track_caller]
fn is_not_accused(said: &Said) {
    said.has(0, &[" 0 fail, "]);
    said.has_not(": 0 pass,");
    said.has_not("NOT TRIED");
}

const FIXED: &str = r#"
stdin=$(cat)
address=$(printf %s "$stdin" | sed -n 's/.*"fixed":"\([^"]*\)".*/\1/p')
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"$address\"}]}" ;;
esac
"#;

#[test]
fn one_address_for_all_is_what_a_config_with_an_address_says() {
    let bin = Bin::with("fixed", FIXED);
    let config = bin.config("fixed.conf", r#"{"ipam":{"type":"fixed","fixed":"10.1.0.5/24"}}"#);
    let rules = ["ipam.no-address-twice", "ipam.check-misses-a-reservation", "concurrency.containers-at-once"];
    let rules: Vec<_> = rules.iter().flat_map(|rule| ["--rule", rule]).collect();
    let said = say(plugin(&bin, &[&["--config", config.to_str().unwrap(), "--case", "8"], &rules[4..]].concat()));
    said.has(0, &[&sum(1, 0, 0, 0)]);
    let said = say(plugin(&bin, &[&["--config", config.to_str().unwrap()], &rules[..4]].concat()));
    said.has(0, &["its addresses stand in its config", &sum(1, 0, 5, 0)]);
}

/// An IPAM plugin in shell: a folder for each container, with its address; and a log. $1: shell lines first, $2: of DEL.
fn pool(first: &str, of_del: &str) -> String {
    r#"
FIRST
mkdir -p /run/pool
exec 9>/run/pool/lock
flock 9
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD)
    number=2
    size=$(printf %s "$stdin" | sed -n 's/.*"size":\([0-9]*\).*/\1/p')
    while [ -e "/run/pool/10.1.0.$number" ]; do number=$((number + 1)); done
    if [ "$number" -gt $((size + 1)) ]; then
        echo '{"cniVersion":"1.0.0","code":100,"msg":"no address is free"}'
        exit 1
    fi
    echo "$CNI_CONTAINERID $CNI_IFNAME" >"/run/pool/10.1.0.$number"
    echo "$CNI_CONTAINERID has 10.1.0.$number" >>/run/pool/log
    echo "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.1.0.$number/24\"}]}" ;;
DEL)
    OF_DEL
    for file in $(grep -slx "$CNI_CONTAINERID $CNI_IFNAME" /run/pool/10.*); do rm "$file"; done ;;
CHECK)
    grep -sqx "$CNI_CONTAINERID $CNI_IFNAME" /run/pool/10.* || {
        echo '{"cniVersion":"1.0.0","code":101,"msg":"there is no reservation"}'
        exit 1
    } ;;
esac
"#
    .replace("FIRST", &format!("stdin=$(cat)\n{first}"))
    .replace("OF_DEL", of_del)
}

fn of_pool(script: &str, addresses: usize, arguments: &[&str]) -> Said {
    let sizes = r#"{ "any": { "/ipam/size": "{0+a}" } }"#;
    of_profile(script, &profile_of_pool("ipam", addresses, sizes), arguments)
}

fn profile_of_pool(role: &str, addresses: usize, sizes: &str) -> String {
    format!(
        r#"{{ "role": "{role}", "folder": ".", "config": {{ "type": "pool", "ipam": {{ "type": "pool", "size": {addresses} }} }},
             "pool": {{ "addresses": {addresses}, "sizes": {sizes} }} }}"#
    )
}

fn of_profile(script: &str, profile: &str, arguments: &[&str]) -> Said {
    let bin = Bin::with("pool", script);
    let file = bin.config("pool.json", profile);
    let command = if arguments.contains(&"faults.del-answers") { "stress" } else { "plugin" };
    let profile = [command, "--report", "terminal", "--profile", file.to_str().unwrap()];
    say(kit(&[&profile, arguments].concat()))
}

/// Of 256 at once only as many come as the range has addresses for.
#[test]
fn no_more_come_at_once_than_the_range_has_addresses() {
    let rule = ["--rule", "concurrency.containers-at-once", "--case", "64"];
    is_not_accused(&of_pool(&pool("", ""), 20, &rule));
}

/// A plugin that makes an interface may give the addresses itself, and its profile then names the pool.
#[test]
fn an_interface_plugin_with_a_pool_is_asked_for_it() {
    let rules = ["no-address-twice", "exhausted-is-an-error", "del-releases"].map(|name| format!("ipam.{name}"));
    let rules: Vec<_> = rules.iter().flat_map(|rule| ["--rule", rule]).collect();
    let with =
        |script: &str| of_profile(script, &profile_of_pool("interface", 20, r#"{ "1": { "/ipam/size": 1 } }"#), &rules);
    let honest = pool("", "");
    is_not_accused(&with(&honest));
    with(&honest.replace("number=$((number + 1))", "break")).has(1, &["FAILED ipam.no-address-twice"]);
    with(&honest.replace("-gt $((size + 1))", "-gt 99")).has(1, &["FAILED ipam.exhausted-is-an-error"]);
    with(&honest.replace("rm \"$file\"", "true")).has(0, &["FAILED ipam.del-releases"]);
    let plain = r#"{ "role": "interface", "folder": ".", "config": { "type": "pool", "ipam": { "type": "pool", "size": 20 } } }"#;
    of_profile(&honest, plain, &rules).has(0, &["its profile names no pool of its own", ": 0 pass, 0 fail"]);
}

/// Three addresses as the config stands, or eight by a size that the profile names.
#[test]
fn many_at_once_ask_for_as_many_as_the_profile_says() {
    let small = ["--rule", "concurrency.small-pool", "--rule", "concurrency.pool-is-whole-again"];
    let honest = pool("", "");
    for (addresses, sizes) in [(3, "{}"), (253, r#"{ "1": { "/ipam/size": 1 }, "8": { "/ipam/size": 8 } }"#)] {
        let said = |script: &str| of_profile(script, &profile_of_pool("ipam", addresses, sizes), &small);
        said(&honest).has(0, &[&sum(2, 0, 0, 0)]);
        let seen = format!("no more than {} of", if addresses == 3 { 3 } else { 8 });
        said(&honest.replace("-gt $((size + 1))", "-gt 99")).has(1, &["FAILED concurrency.small-pool", &seen]);
    }
    let many = ["--rule", "concurrency.containers-at-once"];
    of_pool(&honest, 3, &many).has(0, &["its pool has 3 addresses, and case 8 tries as many", &sum(1, 0, 2, 0)]);
}

/// Where ADD with much in prevResult fails, and then one with little does too.
#[test]
fn a_plugin_whose_every_add_fails_is_told_so() {
    let failing =
        HONEST.replace("ADD)", "ADD) echo '{\"cniVersion\":\"1.0.0\",\"code\":7,\"msg\":\"no\"}'; exit 1 ;;\nNEVER)");
    let bin = Bin::with("mine", &failing);
    let config = bin.config("a.conf", r#"{"type":"mine"}"#);
    let rules = ["--rule", "add.passes-prev-result-on", "--rule", "add.result-", "--rule", "add.prints-a-result"];
    let said = say(plugin(&bin, &[&["--config", config.to_str().unwrap()], &rules[..]].concat()));
    said.has(1, &["add.prints-a-result", " 0 not tried"]);
    said.has_not("File exists");
}

/// Faults that only a pool of few addresses shows are seen with the key that the profile names: wrong variants of the
/// same plugin.
#[test]
fn a_pool_whose_key_the_profile_names_shows_faults() {
    let small = ["--rule", "concurrency.pool-is-whole-again"];
    let lost = ["--rule", "check.notices-a-lost-reservation"];
    let honest = pool("", "");
    is_not_accused(&of_pool(&honest, 20, &small));
    is_not_accused(&of_pool(&honest, 20, &lost));
    let forgetful = honest.replace("rm \"$file\"", "true");
    assert_ne!(forgetful, honest);
    of_pool(&forgetful, 20, &small).has(0, &["FAILED concurrency.pool-is-whole-again"]);
    let blind = honest.replace("grep -sqx \"$CNI_CONTAINERID $CNI_IFNAME\" /run/pool/10.* ||", "true ||");
    assert_ne!(blind, honest);
    of_pool(&blind, 20, &lost).has(0, &["FAILED check.notices-a-lost-reservation"]);
}

#[test]
fn a_slow_machine_is_no_finding() {
    let slow = pool("[ \"$CNI_COMMAND\" != ADD ] || sleep 1", "");
    let rule = ["--rule", "concurrency.containers-at-once", "--case", "64", "--call-deadline", "20"];
    of_pool(&slow, 200, &rule).has(3, &["64 at once would take longer than a call may", &sum(0, 0, 1, 0)]);
}

/// The log names the container too, and is no reservation.
#[test]
fn a_lost_log_is_no_lost_reservation() {
    is_not_accused(&of_pool(&pool("", ""), 200, &["--rule", "check.notices-a-lost-reservation"]));
    let with_book =
        pool("", "").replace("/run/pool/10.*", "/run/book/10.*").replace("/run/pool/10.1.", "/run/book/10.1.");
    // A reservation that does not name the container cannot be lost by hand; the log can, and CHECK does not see that.
    let hashed = with_book
        .replace(
            "mkdir -p /run/pool",
            "mkdir -p /run/pool /run/book; who=$(echo $CNI_CONTAINERID $CNI_IFNAME | sha256sum | cut -c1-64)",
        )
        .replace("echo \"$CNI_CONTAINERID $CNI_IFNAME\"", "echo $who")
        .replace("\"$CNI_CONTAINERID $CNI_IFNAME\"", "$who");
    let said = of_pool(&hashed, 200, &["--rule", "check.notices-a-lost-reservation"]);
    said.has(0, &["no file of it that names the container reserves its address", &sum(0, 0, 1, 0)]);
}

/// A leak is a finding of its own, and no harm to other containers.
#[test]
fn a_leak_that_harms_no_other_is_no_finding() {
    let leaks = pool("", "touch /run/pool/trace.$$");
    is_not_accused(&of_pool(&leaks, 200, &["--rule", "del.leaves-others-alone"]));
    of_pool(&leaks, 200, &["--rule", "del.undoes-modifications"]).has(0, &["+ file /run/pool/trace."]);
}

/// No MUST says that DEL can do without prevResult, so none is broken by a plugin that cannot.
#[test]
fn a_plugin_that_needs_prev_result_for_del_breaks_no_must() {
    let needs = r#"case $stdin in *prevResult*) ;; *)
        echo '{"cniVersion":"1.0.0","code":7,"msg":"prevResult is missing"}'
        exit 1 ;;
    esac"#;
    let needy = pool("", needs).replace("1.0.0", "1.1.0");
    let said = of_pool(&needy, 200, &["--level", "MUST", "--rule", "del.", "--rule", "ipam.", "--rule", "add."]);
    said.has(0, &[" 0 fail, "]);
    said.has_not("FAILED");
    of_pool(&needy, 200, &["--rule", "del.needs-no-prev-result"]).has(0, &["prevResult is missing"]);
}

/// The system calls by which an interpreter starts processes are no matter of the script's author.
#[test]
fn failing_system_calls_of_an_interpreter_are_not_the_plugins() {
    let script = pool("", "");
    let stress = ["--rule", "faults.del-answers"];
    let said = of_pool(&script, 200, &stress);
    said.has_not(": clone");
    said.has_not(": execve");
    said.has_not(": ioctl");
}

/// A plugin may stop at the first variable that is missing, and need not look at the name of its network.
#[test]
fn a_plugin_that_asks_for_less_breaks_no_must() {
    let first = r#"for name in CONTAINERID NETNS IFNAME; do
        eval "value=\${CNI_$name-}"
        [ -n "$value" ] || [ "$CNI_COMMAND" = VERSION ] || {
            echo "{\"cniVersion\":\"1.0.0\",\"code\":4,\"msg\":\"CNI_$name is missing\"}"
            exit 1
        }
    done"#;
    is_not_accused(&of_pool(&pool(first, ""), 200, &["--rule", "errors.4-names-variables"]));
    let nameless = pool("", "").replace("1.0.0", "0.4.0");
    of_pool(&nameless, 200, &["--rule", "errors.object-in-0.4.0"]).has(0, &["that is no failure of it"]);
}

/// Plugins with a mind of their own: each behaves otherwise than the reference, and is expected to break no MUST. `.ci/run` tries them.
#[test]
fn other_minds_break_no_must() {
    for expected in [
        "viasix/expected",
        "resolver/expected",
        "slow-pool/expected",
        "slow-pool/expected-of-one",
        "flannel-shape/expected",
    ] {
        let text = std::fs::read_to_string(format!("{EXAMPLES}/{expected}")).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let rule = cni_conformance::rules::rule(line.split(' ').nth(1).unwrap()).unwrap();
            assert_ne!(rule.level(), cni_conformance::rule::Level::Must, "{expected}: {line}");
        }
    }
}

/// The leases of all networks are lines of one file.
#[test]
fn gc_of_a_network_that_takes_lines_of_another_is_found() {
    let line = r#"name=$(printf %s "$stdin" | sed 's/.*"name":"\([^"]*\)".*/\1/')
    line="$name $CNI_CONTAINERID""#;
    let script = pool(line, "true").replace("1.0.0", "1.1.0").replace(
        "CHECK)\n",
        "GC) case $stdin in *'\"name\":\"another\"'*) name=another ;; *) name=conformance ;; esac
            sed -i \"/^ONLY /d\" /run/pool/lines ;;\nCHECK)\n    grep -qx \"$line\" /run/pool/lines || exit 1\n",
    );
    let script = script.replace("    number=2\n", "    number=2; echo \"$line\" >>/run/pool/lines\n");
    let rule = ["--rule", "gc.keeps-other-networks"];
    is_not_accused(&of_pool(&script.replace("ONLY", "$name"), 200, &rule));
    let wrong = script.replace("ONLY", "[a-z]*");
    of_pool(&wrong, 200, &[&rule[..], &["--fail-level", "must"]].concat()).has(0, &["FAILED gc.keeps-other-networks"]);
    of_pool(&wrong, 200, &rule).has(1, &["FAILED gc.keeps-other-networks", "CHECK of the other network's attachment"]);
}

/// The rest of an IPAM plugin that has no GC is not the fault of the plugin that forwards it.
#[test]
fn a_finding_that_the_kits_own_delegate_cures_is_the_delegates() {
    let forwards = r#"case "$CNI_COMMAND" in VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'; exit ;; esac
        stdin=$(cat)
        kind=$(printf %s "$stdin" | sed -n 's/.*"ipam":{"type":"\([^"]*\)".*/\1/p')
        printf %s "$stdin" | "${CNI_PATH%%:*}/$kind""#;
    let bin = Bin::with("mine", forwards);
    bin.put("pool", &pool("", ""));
    let config = bin.config("mine.conf", r#"{"type":"mine","ipam":{"type":"pool","size":20}}"#);
    let rule = [
        "--config",
        config.to_str().unwrap(),
        "--role",
        "interface",
        "--rule",
        "gc.removes",
        "--case",
        "none-is-valid",
    ];
    let said = say(plugin(&bin, &[&rule[..], &["--report", "terminal"]].concat()));
    said.has(0, &["of its delegate pool, which has no GC: with the kit's own in its place the rule is kept"]);
}

/// A second network of the same config may be more than a node can have, and says nothing of GC.
#[test]
fn a_config_that_one_network_can_have_is_no_finding_of_gc() {
    let refuses = "case $stdin in *'\"name\":\"another\"'*) echo '{\"code\":100,\"msg\":\"the range is in use\"}'; exit 1 ;; esac";
    let script = pool(refuses, "").replace("1.0.0", "1.1.0");
    of_pool(&script, 200, &["--rule", "gc.keeps-other-networks"])
        .has(0, &["its ADD fails in a second network of the same config", &sum(2, 0, 1, 0)]);
}

/// The error object is asked for by a rule of its own.
#[test]
fn a_failure_without_an_object_is_one() {
    let silent = pool("case $CNI_CONTAINERID$CNI_COMMAND in ?*ADD|?*DEL|VERSION) ;; *) exit 1 ;; esac", "");
    let rules = ["--rule", "parameters.required", "--case", "add-container-id", "--rule", "parameters.config-is"];
    is_not_accused(&of_pool(&silent, 200, &rules));
}

/// SPEC 0.4.0 has codes 1, 2, 3 and 11, and says that no other below 100 must be used. A plugin that speaks 1.0.0, too, has one
/// set of codes.
#[test]
fn a_code_of_1_0_0_is_none_of_0_4_0() {
    let old = |code: u32| {
        pool("", "").replace("1.0.0", "0.4.0").replace("mkdir -p /run/pool", &format!(
            "[ -n \"$CNI_CONTAINERID$(echo $CNI_COMMAND | grep VERSION)\" ] || {{ echo '{{\"cniVersion\":\"0.4.0\",\"code\":{code},\"msg\":\"no id\"}}'; exit 1; }}; mkdir -p /run/pool"
        ))
    };
    let rule = ["--rule", "errors.reserved-codes-in-0.4.0", "--case", "codes-of-1.0.0"];
    of_pool(&old(4), 20, &rule).has(1, &["FAILED errors.reserved-codes-in-0.4.0", "code 1, 2, 3, 11"]);
    is_not_accused(&of_pool(&old(100), 20, &rule));
    let newer = old(4).replace(r#"["0.4.0"]"#, r#"["0.4.0","1.0.0"]"#);
    assert_ne!(newer, old(4));
    of_pool(&newer, 20, &rule).has(0, &["it speaks 1.0.0, too", &sum(0, 0, 1, 0)]);
}

/// Plugins are not told which names a network may have, and a failure without an error object is another rule's.
#[test]
fn versions_and_codes_are_asked_of_error_objects_alone() {
    let rules =
        ["--rule", "errors.version", "--rule", "errors.reserved", "--rule", "errors.4-names", "--rule", "errors.2"];
    let silent = pool("case $stdin in *a/b*|*'[[-1]]'*) exit 1 ;; esac", "");
    for script in [pool("", ""), silent.clone(), silent.replace("1.0.0", "0.4.0")] {
        let said = of_pool(&script, 20, &rules);
        said.has(0, &[" 0 fail, "]);
    }
}

/// CHECK right after ADD fails with one case of that rule only; in the trial of the later plugin it has passed before.
#[test]
fn a_finding_is_not_left_to_a_rule_that_the_same_trial_has_kept() {
    let wants_its_own = format!(
        r#"stdin=$(cat)
        case $CNI_COMMAND:$stdin in CHECK:*4711*|CHECK:*foreign0*)
            echo '{{"cniVersion":"1.1.0","code":101,"msg":"that is not mine"}}'
            exit 1 ;;
        esac
        printf %s "$stdin" | {EXAMPLES}/pyveth/pyveth"#
    );
    let profile = format!(
        r#"{{ "command": "pool", "also": ["{EXAMPLES}/cidr-pool"], "writes": ["/var/lib/cidr-pool"],
             "config": {{ "type": "pool", "ipam": {{ "type": "cidr-pool", "cidr": "10.91.0.0/24" }} }} }}"#
    );
    let rules = ["--rule", "check.passes-after-add", "--rule", "check.bears-later-plugins"];
    of_profile(&wants_its_own, &profile, &rules)
        .has(1, &["FAILED check.passes-after-add", "FAILED check.bears-later-plugins"]);
}

/// A service address is on each container, whenever it comes.
#[test]
fn an_address_that_every_container_gets_is_not_given_twice() {
    let rules = ["--rule", "concurrency.no-address-twice", "--rule", "concurrency.containers-at-once", "--case", "8"];
    let with_service = pool("", "").replace("/24\\\"}]", "/24\\\"},{\\\"address\\\":\\\"169.254.20.10/32\\\"}]");
    assert_ne!(with_service, pool("", ""));
    of_pool(&with_service, 200, &rules[..2]).has(0, &[&sum(1, 0, 0, 0)]);
    of_pool(&with_service, 200, &rules[2..]).has(0, &[&sum(1, 0, 0, 0)]);
}

/// A pool of one is empty while its address cools down, and a plugin may remember addresses without reserving them.
#[test]
fn an_address_that_cools_down_or_is_only_remembered_is_no_lost_reservation() {
    let lost = ["--rule", "check.notices-a-lost-reservation"];
    let cool = "if [ $CNI_COMMAND = ADD ] && [ -e /run/pool/cool ]; then
        echo '{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"its address cools down\"}'; exit 1; fi";
    let cooling = pool(cool, "[ -e /run/pool/first ] && touch /run/pool/cool; touch /run/pool/first");
    of_pool(&cooling, 20, &lost).has(0, &["its ADD fails for a container that came and went", &sum(0, 0, 1, 0)]);
    let remembers = pool("", "").replace("while [ -e", "while false && [ -e");
    of_pool(&remembers, 20, &lost).has(0, &["it reserves no address", &sum(0, 0, 1, 0)]);
}

/// SPEC 0.4.0: the sandbox of a virtual machine is an ID, and its interface is not on the node.
#[test]
fn an_interface_behind_an_id_is_not_looked_for() {
    let script = format!(
        r#"stdin=$(cat)
        printf %s "$stdin" | {EXAMPLES}/pyveth/pyveth >/run/answer || {{ cat /run/answer; exit 1; }}
        [ $CNI_COMMAND = ADD ] || {{ cat /run/answer; exit; }}
        python3 -c 'import json
result = json.load(open("/run/answer"))
result["interfaces"].append({{"name": "eth0", "mac": "0a:00:00:00:00:77", "sandbox": "vm-4711"}})
result["ips"].append({{"address": "192.0.2.77/24", "interface": len(result["interfaces"]) - 1}})
print(json.dumps(result))'"#
    );
    let profile = format!(
        r#"{{ "command": "pool", "also": ["{EXAMPLES}/cidr-pool"], "writes": ["/var/lib/cidr-pool"],
             "config": {{ "type": "pool", "ipam": {{ "type": "cidr-pool", "cidr": "10.91.0.0/24" }} }} }}"#
    );
    is_not_accused(&of_profile(&script, &profile, &["--rule", "add.result-"]));
}
