//! Input of the conformance kit: answers of its subjects, and files of the kernel.

use crate::invariants;
use cni_conformance::{Profile, fuzzing, result_validation, spec_version};

/// The output of a plugin, behind a byte for its exit status.
pub fn kit_answer(data: &[u8]) {
    let (exit, stdout) = data.split_first().map_or((0, data), |(first, rest)| (i32::from(*first), rest));
    let answer = fuzzing::answer(exit, &invariants::text(stdout));
    let (result, error) = (answer.succeeds(), answer.fails());
    assert!(result.is_err() || error.is_err(), "a success is no failure");
    assert_eq!(answer.prints_nothing().is_ok(), exit == 0 && stdout.is_empty());
    if let Ok(error) = &error {
        assert!(answer.fails_with(error.code).is_ok() && answer.fails_with(error.code ^ 1).is_err());
    }
    let result = result.unwrap_or_default();
    for version in spec_version::VERSIONS {
        let (faults, unknown) =
            (result_validation::faults(&result, version), result_validation::unknown_keys(&result, version));
        assert!(faults.iter().chain(&unknown).all(|text| !text.is_empty()));
    }
    fuzzing::addresses(&result).iter().for_each(|address| assert!(!address.contains('/'), "{address:?}"));
}

/// A config that its author wrote to have a plugin tried with it.
pub fn kit_config(data: &[u8]) {
    match Profile::given("given", &invariants::text(data), None) {
        Ok(profile) => {
            assert!(!profile.executable(0).is_empty() && !profile.executable(0).contains('/'));
            for (index, version) in
                (0..profile.plugins.len()).flat_map(|index| spec_version::VERSIONS.map(|v| (index, v)))
            {
                assert_eq!(profile.config(index, version, 1)["cniVersion"], version);
            }
        }
        Err(error) => assert!(!error.is_empty() && !error.contains('\n'), "{error:?} is not one line"),
    }
}

/// The list of mounts by which the machine is kept from a plugin: no line of it hides another.
pub fn kit_mounts(data: &[u8]) {
    const ROOT: &[u8] = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n";
    let alone = fuzzing::mounts(data);
    let behind = fuzzing::mounts(&[ROOT, data].concat());
    assert_eq!(behind.first().map(|place| place.as_os_str().as_encoded_bytes()), Some(&b"/"[..]));
    assert_eq!(behind.get(1..), Some(&alone[..]));
}
