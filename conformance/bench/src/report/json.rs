//! A report as a file, and back.

use std::fs;
use std::path::Path;

use super::Report;

pub(crate) fn write(report: &Report, file: &Path) -> Result<(), String> {
    let text = serde_json::to_string(report).map_err(|error| format!("cannot put the report into JSON: {error}"))?;
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

pub(crate) fn read(file: &Path) -> Result<Report, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is no report of this benchmark: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        super::write(&made_up::report(), &file).unwrap();
        let again = super::read(&file).unwrap();
        assert_eq!(format!("{again:?}"), format!("{:?}", made_up::report()));
    }

    #[test]
    fn an_invalid_report_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        assert!(super::read(&file).unwrap_err().contains("cannot read"));
        std::fs::write(&file, "{}").unwrap();
        assert!(super::read(&file).unwrap_err().contains("is no report"));
    }
}
