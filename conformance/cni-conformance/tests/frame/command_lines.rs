//! The command line.

use crate::run_kit::{Bin, HONEST, kit, plugin, say, sum};

#[test]
fn unknown_names_are_errors_with_near_ones() {
    let bin = Bin::with("loopback", HONEST);
    let bad = |arguments: &[&str], text: &str| say(plugin(&bin, arguments)).has(2, &[text]);
    bad(&["--rule", "del.leave-nothing"], "there is no rule \"del.leave-nothing\": did you mean del.leaves-nothing");
    bad(&["--only", "loopbac"], "there is no plugin \"loopbac\": did you mean loopback?");
    bad(&["--case", "xyzzy"], "there is no case \"xyzzy\"");
    bad(&["--only", "bridge"], "nothing to test");
    bad(&["--level", "shuld"], "invalid value 'shuld'");
    bad(&["--report", "terminl"], "terminl");
    bad(&["--config", "/no/such/file"], "/no/such/file: No such file");
    bad(&["--repeat", "0"], "invalid value '0'");
}

#[test]
fn a_config_has_to_be_one() {
    let bin = Bin::with("loopback", HONEST);
    for (text, why) in [("{", "it is not JSON"), ("[]", "no plugin object"), (r#"{"type":"none"}"#, "called \"none\"")]
    {
        let config = bin.config("a.conf", text);
        say(plugin(&bin, &["--config", config.to_str().unwrap()])).has(2, &[why]);
    }
}

#[test]
fn rules_of_a_users_own_file_are_tried() {
    let bin = Bin::with("loopback", HONEST);
    let rule = |steps: &str| {
        let rule = r#"[{"id": "mine.adds", "relied": "our operators", "binds": ["interface"], "says": "ADD succeeds.",
            "cases": [{"does": "ADD of two containers.", "steps": STEPS}]}]"#;
        rule.replace("STEPS", steps)
    };
    let file = |text: &str| bin.config("mine.json", text).display().to_string();
    let with = |text: &str, arguments: &[&str]| {
        say(plugin(&bin, &[&["--only", "loopback", "--cases", &file(text)], arguments].concat()))
    };
    let kept = rule(r#"[{"ADD": {}}, {"pod": null}, {"ADD": {}}]"#);
    with(&kept, &["--rule", "mine."]).has(0, &[&sum(1, 0, 0, 0)]);
    with(&kept, &["--list-rules"]).has(0, &["| mine.adds | RELIED ON | our operators |"]);
    say(kit(&["explain", "mine.", "--cases", &file(&kept)])).has(0, &[r#"steps: [{"ADD": {}}, "#]);
    let broken = with(&rule(r#"[{"ADD": {"expect": "refusal"}}]"#), &["--rule", "mine.", "--fail-level", "relied"]);
    broken.has(1, &["FAILED mine.adds", &format!(" --cases {}", bin.path().display())]);
    for (wrong, why) in [
        (rule(r#"["attatch"]"#), "mine.adds: unknown variant `attatch`, expected one of `network`, "),
        (kept.replace("mine.adds", "add.prints-a-result"), "add.prints-a-result: another has its name"),
        (kept.replace("mine.adds", "mine"), "mine: its name is none"),
        (kept.replace(r#""relied": "our operators","#, ""), "mine.adds: it has neither `cites` nor `relied`"),
        (kept.replace(r#""relied": "our operators""#, r#""cites": ["add/nothing"]"#), "it cites what is no sentence"),
    ] {
        with(&wrong, &[]).has(2, &["mine.json: ", why]);
    }
}

#[test]
fn subjects_have_labels_that_differ() {
    let bin = Bin::with("loopback", HONEST);
    let labelled = |label: &str| format!("{label}={}", bin.path().display());
    let run = |one: &str, other: &str| {
        say(kit(&[
            "plugin",
            "--bin-dir",
            one,
            "--bin-dir",
            other,
            "--rule",
            "version.lists-versions",
            "--only",
            "loopback",
        ]))
    };
    run(&labelled("one"), &labelled("two")).has(0, &[&sum(2, 0, 0, 0)]);
    run(&labelled("one"), &labelled("one")).has(2, &["two subjects are called one"]);
    run("one=/no/such/folder", &labelled("two")).has(2, &["/no/such/folder: No such file"]);
}

#[test]
fn executables_without_a_profile_are_named() {
    let bin = Bin::with("loopback", HONEST);
    bin.put("special", HONEST);
    say(plugin(&bin, &["--rule", "version.lists-versions"]))
        .has(0, &["not tested, for want of a config (--config): special"]);
    say(plugin(&bin, &["--rule", "version.lists-versions", "--only", "loopback"])).has_not("special");
}

#[test]
fn rules_are_listed() {
    let all = say(kit(&["rules"]));
    all.has(
        0,
        &["| **del/deletes** | SHOULD plugins", "| del.leaves-nothing |", "| answers.plugin-hangs |", "hostile."],
    );
    let some = say(kit(&["plugin", "--list-rules", "--rule", "version.lists-versions"]));
    some.has(0, &["| version.lists-versions | MUST | SPEC 5, Version |"]);
    some.has_not("del.leaves-nothing");
}

/// A plugin with a finding that is made anew by its own command.
fn leaking() -> Bin {
    let leak = "ADD) touch /run/left.$CNI_CONTAINERID; echo '{\"cniVersion\":\"1.0.0\"}' ;;\nNEVER)";
    Bin::with("loopback", &HONEST.replace("ADD)", leak))
}

#[test]
fn the_summary_comes_first_and_names_the_rest() {
    let arguments = ["--only", "loopback", "--rule", "del.leaves-nothing", "--report", "summary"];
    let said = say(plugin(&leaking(), &arguments));
    said.has(0, &["expected: the node as before ADD", "again:", "about it:", " explain del.leaves-nothing"]);
    said.has_not("env -i");
    assert!(said.stdout.starts_with("rules"), "{}", said.stdout);
    assert!(said.stdout.lines().count() < 25, "{}", said.stdout);
}

/// Copied into a shell, the command of a finding finds the same.
#[test]
fn the_command_of_a_finding_finds_it_again() {
    let bin = leaking();
    let config = bin.config("it's.conf", r#"{"type":"loopback"}"#);
    let profile = bin.config("it's a.json", r#"{"command":"loopback","config":{"type":"loopback"}}"#);
    let rule = ["--rule", "del.leaves-nothing", "--report", "summary", "--call-deadline=20"];
    let finding = |said: &crate::run_kit::Said| {
        let lines = said.stdout.lines().map(str::trim).skip_while(|line| !line.starts_with("FAILED"));
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let labelled = format!("mine={}", bin.path().display());
    let config = ["--config", config.to_str().unwrap(), "--role", "interface", "--writable", "/srv/not-there"];
    for mut command in [
        plugin(&bin, &[&["--only", "loopback"][..], &rule].concat()),
        plugin(&bin, &[&config[..], &rule].concat()),
        kit(&[&["plugin", "--bin-dir", &labelled, "--only", "loopback"][..], &rule].concat()),
        kit(&[&["plugin", "--profile", profile.file_name().unwrap().to_str().unwrap()][..], &rule].concat()),
    ] {
        command.current_dir(bin.path());
        let first = say(command);
        let found = finding(&first);
        let again = found.iter().find_map(|line| line.strip_prefix("again:")).expect("a command").trim().to_owned();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &again]).current_dir("/");
        let second = say(shell);
        let (mut one, mut other) = (found, finding(&second));
        // The only difference is how the option of the report is left out.
        for lines in [&mut one, &mut other] {
            lines.retain(|line| !line.starts_with("again:"));
        }
        assert_eq!(one, other, "{again}\n{}", second.stderr);
        assert!(!one.is_empty());
    }
}

/// Also where the executable has another name and is called by a path.
#[test]
fn the_command_of_a_finding_names_the_kit_as_it_was_called() {
    let bin = leaking();
    testns::unshared(|| std::fs::copy(env!("CARGO_BIN_EXE_cni-conformance"), bin.path().join("a kit"))).unwrap();
    let mut command = std::process::Command::new("./a kit");
    command.args(["plugin", "--bin-dir", ".", "--only", "loopback", "--rule", "del.leaves-nothing"]);
    command.current_dir(bin.path());
    let kit = format!("'{}/./a kit'", bin.path().display()).replace("/./", "/");
    let said = say(command);
    said.has(
        0,
        &[&format!("again:    {kit} plugin --bin-dir"), &format!("about it: {kit} explain del.leaves-nothing")],
    );
    // A folder without a name for reports has its path.
    said.has(0, &[&format!("{}, loopback, version", bin.path().canonicalize().unwrap().display())]);
}

#[test]
fn statuses_tell_what_is_wrong() {
    let status = |script: &str, arguments: &[&str]| {
        let only = ["--only", "loopback", "--report", "summary"];
        say(plugin(&Bin::with("loopback", script), &[&only, arguments].concat())).status
    };
    let versions = ["--rule", "version.lists-versions"];
    assert_eq!(status(HONEST, &versions), Some(0));
    assert_eq!(status("exit 1", &versions), Some(1));
    assert_eq!(status(HONEST, &["--no-such-option"]), Some(2));
    let hangs = HONEST.replace("ADD)", "ADD) sleep 4325;");
    assert_eq!(status(&hangs, &["--rule", "del.leaves-nothing", "--case-deadline", "1"]), Some(3));
}

/// A finding that is new fails, so does one that is lost, and nothing else.
#[test]
fn findings_are_compared_with_what_is_expected() {
    let bin = leaking();
    let rules = ["--only", "loopback", "--rule", "del.leaves-nothing", "--rule", "version.lists-versions"];
    let with = |expected: &str| {
        let file = bin.config("expected", expected);
        say(plugin(&bin, &[&rules[..], &["--expect", file.to_str().unwrap()]].concat()))
    };
    with("loopback del.leaves-nothing - # known\nbridge del.leaves-nothing -\n").has(0, &[]);
    with("loopback del.leaves-nothing - ?\nloopback version.lists-versions - ?\n").has(0, &[]);
    with("# nothing\n").has(1, &["+ loopback del.leaves-nothing -"]);
    with("loopback del.leaves-nothing -\nloopback version.lists-versions -\n")
        .has(1, &["- loopback version.lists-versions -"]);
    with("lopback del.leaves-nothing -\nloopback del.leaves-nothing -\n")
        .has(0, &["no profile \"lopback\": did you mean loopback"]);
    let list = say(plugin(&bin, &[&rules[..], &["--report", "findings"]].concat()));
    assert_eq!(list.stdout, "loopback del.leaves-nothing -\n");
}

/// And found before anything is tried.
#[test]
fn a_file_of_expected_findings_has_to_be_one() {
    let bin = leaking();
    let with = |file: &std::path::Path| {
        say(plugin(&bin, &["--only", "loopback", "--case-deadline", "1", "--expect", file.to_str().unwrap()]))
    };
    with(&bin.path().join("none")).has(2, &["none: No such file"]);
    for (text, why) in [
        ("# a remark\n\nnonsense\n", "expected, line 3: it is no finding"),
        ("loopback del.leaves-nothin -", "line 1: there is no rule \"del.leaves-nothin\": did you mean"),
        ("loopback del.is-repeatable -", "line 1: there is no case of del.is-repeatable called \"-\""),
        ("loopback del.leaves-nothing - !", "line 1: it is no finding"),
    ] {
        with(&bin.config("expected", text)).has(2, &[why]);
    }
}

/// No report of a run without news says that something failed.
#[test]
fn an_expected_finding_is_no_failure() {
    let bin = leaking();
    let file = bin.config("expected", "loopback del.leaves-nothing - # known\n");
    let reports = ["junit", "terminal", "summary"].map(|name| (name, bin.path().join(name)));
    let arguments = reports.each_ref().map(|(name, path)| format!("{name}={}", path.display()));
    let mut command = plugin(&bin, &["--only", "loopback", "--rule", "del.leaves-nothing", "--report", "findings"]);
    command.arg("--expect").arg(&file).args(arguments.iter().flat_map(|one| ["--report", one]));
    let said = say(command);
    said.has(0, &[]);
    let [junit, full, brief] = reports.map(|(_, path)| std::fs::read_to_string(path).unwrap());
    assert!(junit.contains("failures=\"0\"") && junit.contains("<skipped message=\"an expected finding: "), "{junit}");
    assert!(full.contains("EXPECTED del.leaves-nothing") && full.contains("1 broken as expected"), "{full}");
    assert!(brief.contains("1 trial found what is expected"), "{brief}");
    assert!(![full, brief].iter().any(|text| text.contains("FAIL")));
}

/// The calls of a finding, with the steps between them, copied into a shell: the last one ends as it did.
#[test]
fn the_calls_of_a_finding_are_made_again_in_a_shell() {
    let script = r#"ns=${CNI_NETNS##*/}
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) ip -n "$ns" link add "$CNI_IFNAME" type bridge && ip -n "$ns" link set "$CNI_IFNAME" up
    echo "{\"cniVersion\":\"1.0.0\",\"interfaces\":[{\"name\":\"$CNI_IFNAME\",\"sandbox\":\"$CNI_NETNS\"}]}" ;;
esac"#;
    let bin = Bin::with("mine", script);
    let profile = r#"{ "command": "mine", "config": { "type": "mine" }, "files": { "/run/mine/a": "b c" } }"#;
    let file = bin.config("mine.json", profile);
    let rule = ["--rule", "check.notices-a-harmed-interface", "--case", "down"];
    let said =
        say(kit(&[&["plugin", "--profile", file.to_str().unwrap(), "--report", "terminal"], &rule[..]].concat()));
    said.has(0, &["FAILED check.notices-a-harmed-interface", "case down"]);
    let finding = said.stdout.split("\n\n").find(|text| text.contains("case down")).unwrap();
    let pasted: Vec<_> = finding.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(pasted.iter().any(|line| line.ends_with("link set eth0 down")), "{finding}");
    let mut shell = std::process::Command::new("bash");
    shell.args([
        "-c",
        r#"printf '%s\n' "$0" 'echo "status $? $(cat /run/mine/a) $(ip -n pod-00001 link show eth0)"' | bash -s"#,
    ]);
    let again = say({
        shell.arg(pasted.join("\n"));
        shell
    });
    again.has(0, &["status 0 b c", ": eth0: ", "state DOWN"]);
    assert!(again.stderr.is_empty(), "{}", again.stderr);
}

#[test]
fn levels_are_known_in_any_case() {
    let both = say(kit(&["plugin", "--list-rules", "--level", "should", "--level", "must"]));
    both.has(0, &["| SHOULD |"]);
    both.has_not("| STATED |");
    let by_default = say(kit(&["plugin", "--list-rules"]));
    by_default.has(0, &["| SHOULD |", "| gc.keeps-other-networks | STATED |"]);
    by_default.has_not("| RELIED ON |");
    for level in ["must", "MUST", "Should"] {
        say(plugin(&Bin::with("loopback", HONEST), &["--list-rules", "--level", level])).has(0, &["| MUST |"]);
    }
}

#[test]
fn a_reader_may_leave() {
    let bin = Bin::with("loopback", HONEST);
    let kit = env!("CARGO_BIN_EXE_cni-conformance");
    let run = format!("{kit} plugin --bin-dir {} --rule version.lists-versions --report json", bin.path().display());
    for command in [format!("{kit} rules"), run, format!("{kit} explain del.")] {
        // The reader has left before anything is written.
        let script = format!("{{ {command}; echo \"status $?\" >&2; }} | true");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]);
        let said = say(shell);
        assert_eq!(said.stderr, "status 0\n", "{command}");
    }
}

#[test]
fn a_rule_is_explained() {
    let said = say(kit(&["explain", "del.leaves-nothing"]));
    said.has(0, &["del.leaves-nothing: SHOULD", "DEL takes back everything", "--rule del.leaves-nothing"]);
    said.has(
        0,
        &[
            "says:   DEL deletes the interface CNI_IFNAME, or undoes what ADD of the plugin changed",
            "          ADD and DEL of a second container; the node is compared with before.",
            "skipped:",
            "to do:",
        ],
    );
    say(kit(&["explain", "add.refuses-an-existing-interface"])).has(
        0,
        &["quote:  If an interface of the requested name already exists in the container, the CNI plugin MUST return"],
    );
    say(kit(&["explain", "relied.words"])).has(0, &["no sentence of the specification"]);
    say(kit(&["explain", "del."]))
        .has(0, &["del.leaves-nothing:", "del.is-repeatable:", "--case namespace-alive, with the newest"]);
    say(kit(&["explain", "del.leave-nothing"])).has(2, &["did you mean del.leaves-nothing"]);
}

/// A plugin that passes prevResult on makes no interface of its own.
#[test]
fn the_role_chained_is_hinted_at() {
    let bin = Bin::with("echoes", HONEST);
    let config = bin.config("a.conf", r#"{"type":"echoes"}"#);
    let config = ["--config", config.to_str().unwrap(), "--rule", "add.makes-the-interface"];
    say(plugin(&bin, &config)).has(0, &["--role chained"]);
    say(plugin(&bin, &[&config[..], &["--role", "interface"]].concat())).has_not("say --role chained");
}

/// An ADD that fails for a reason of its own, or has addresses to give, is no chained plugin's.
#[test]
fn the_role_chained_is_hinted_at_where_it_may_be_the_cause() {
    let said = |msg: &str, config: &str| {
        let add = format!("ADD) echo '{{\"cniVersion\":\"1.0.0\",\"code\":7,\"msg\":\"{msg}\"}}'; exit 1 ;;\nNEVER)");
        let bin = Bin::with("fails", &HONEST.replace("ADD)", &add));
        let config = bin.config("a.conf", config);
        say(plugin(&bin, &["--config", config.to_str().unwrap(), "--rule", "add.prints-a-result"]))
    };
    said("prevResult is missing", r#"{"type":"fails"}"#).has(1, &["say --role chained"]);
    said("the daemon is not there", r#"{"type":"fails"}"#).has_not("say --role chained");
    said("prevResult is missing", r#"{"type":"fails","ipam":{"type":"none"}}"#).has_not("say --role chained");
}

#[test]
fn a_report_goes_to_a_file() {
    let bin = Bin::with("loopback", HONEST);
    let file = bin.path().join("report");
    let said =
        say(plugin(&bin, &["--rule", "version.lists-versions", "--report", &format!("terminal={}", file.display())]));
    said.has(0, &[]);
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains(&sum(1, 0, 0, 0)), "{report}");
}

/// With `--list-rules` too, which tries nothing.
#[test]
fn a_profile_with_a_misspelt_rule_or_key_is_an_error() {
    let bin = Bin::with("loopback", HONEST);
    let wrong = |text: &str, said: &str| {
        let file = bin.config("wrong.json", text);
        let arguments = ["plugin", "--profile", file.to_str().unwrap()];
        say(kit(&arguments)).has(2, &["wrong.json, line 1", said]);
        say(kit(&[&arguments[..], &["--list-rules"]].concat())).has(2, &["wrong.json, line 1", said]);
    };
    let with = |more: &str| format!(r#"{{ "folder": ".", "config": {{ "type": "loopback" }}, {more} }}"#);
    wrong(&with(r#""unbound": { "del.leave-nothing": "why" }"#), "did you mean del.leaves-nothing");
    wrong(&with(r#""unbound": { "del.is-repeatable/gone": "why" }"#), "there is no rule or case");
    wrong(&with(r#""roll": "ipam""#), "unknown field");
    wrong(&with(r#""files": { "etc/x": "" }"#), "no absolute path");
}

#[test]
fn files_of_a_profile_are_there() {
    let needs = HONEST.replace("ADD)", "ADD) grep -q 10.5.0.0 /run/flannel/subnet.env || exit 1;");
    let bin = Bin::with("loopback", &needs);
    let with = |more: &str| {
        let text = format!(r#"{{ "folder": ".", "config": {{ "type": "loopback" }}{more} }}"#);
        let file = bin.config("mine.json", &text);
        say(kit(&[
            "plugin",
            "--profile",
            file.to_str().unwrap(),
            "--rule",
            "add.prints-a-result",
            "--report",
            "terminal",
        ]))
    };
    with("").has(1, &["add.prints-a-result"]);
    with(r#", "files": { "/run/flannel/subnet.env": "FLANNEL_NETWORK=10.5.0.0/16\n" }"#).has(0, &[&sum(1, 0, 0, 0)]);
}

/// A MUST that this machine does not let the kit try is no MUST that is kept.
#[test]
fn what_the_machine_lacks_for_a_must_is_told_by_the_status() {
    let bin = Bin::with("loopback", HONEST);
    let lacking = testns::Feature::ALL.iter().find(|feature| !feature.is_here());
    let Some(lacking) = lacking else {
        return testns::skip("what_the_machine_lacks_for_a_must_is_told_by_the_status", "the kernel has all features");
    };
    let text = format!(r#"{{ "folder": ".", "config": {{ "type": "loopback" }}, "needs": ["{lacking}"] }}"#);
    let file = bin.config("mine.json", &text);
    let status = |rule: &str, report: &str| {
        say(kit(&["plugin", "--profile", file.to_str().unwrap(), "--rule", rule, "--report", report]))
    };
    status("add.prints-a-result", "terminal")
        .has(3, &["skipped: 1 trial of add.prints-a-result: not tried here: the kernel has no"]);
    status("add.prints-a-result", "summary").has(3, &["1 trial says nothing", "not tried here: the kernel has no"]);
    status("del.leaves-nothing", "terminal").has(0, &["not tried here: the kernel has no"]);
}
