//! Man pages.

use crate::fixture::Tool;
use crate::metrics::run;
use std::path::PathBuf;

#[test]
fn each_verb_has_a_man_page_with_its_options_and_examples() {
    let tool = Tool::new();
    let dir = tool.path("man");
    let write = || tool.run(&["generate", "man", dir.to_str().unwrap()]);
    assert_eq!(write().code, 1, "there is no such folder");
    assert!(!dir.exists());
    let elsewhere = tool.write("elsewhere", "another's");
    std::fs::create_dir_all(dir.join("man1")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.join("man1/cnitool.1")).unwrap();
    write().ok();
    assert_eq!(tool.read("elsewhere"), "another's");
    for (page, words) in [("cnitool", ["doctor", "cnitool add pods"]), ("cnitool-gc", ["keep", "cnitool gc pods"])] {
        let text = tool.read(&format!("man/man1/{page}.1"));
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
            assert_eq!(text.matches(&format!(".SH {section}\n")).count(), 1, "{section}: {text}");
        }
        // Without a date the next word would be the date.
        assert!(text.contains(&format!(".TH {page} 1 \"\" \"cni-plugins 1.9.1")), "{text}");
        let examples = text.split_once(".SH EXAMPLES\n").unwrap().1.split_once(".SH").unwrap().0;
        assert!(!examples.contains("Exit codes"), "{examples}");
        assert!(text.contains(".SH OPTIONS") && words.iter().all(|word| text.contains(word)), "{text}");
    }
    let pages = tool.files("man/man1");
    assert!(pages.contains(&"cnitool-ipam-list.1".to_owned()) && !pages.contains(&"cnitool-mark.1".to_owned()));
}

/// Every page, by the programs that people read it with.
#[test]
fn the_readers_of_man_pages_have_no_complaint() {
    let tool = Tool::new();
    let dir = tool.path("man");
    std::fs::create_dir(&dir).unwrap();
    tool.run(&["generate", "man", dir.to_str().unwrap()]).ok();
    let pages: Vec<_> = tool.files("man/man1").iter().map(|page| dir.join("man1").join(page)).collect();
    assert!(!pages.is_empty());
    let run = |program, options: &[&str]| {
        let words: Vec<_> = options.iter().map(PathBuf::from).chain(pages.clone()).collect();
        run(program, &words.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    };
    if let Some(said) = run("groff", &["-k", "-man", "-Tutf8", "-ww", "-z"]) {
        assert_eq!(said, "");
    }
    run("mandoc", &["-T", "lint", "-W", "error"]);
}
