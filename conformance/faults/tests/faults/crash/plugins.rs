//! ADD of each of the other interface plugins, interrupted or with each system call failing. The kit asks the rest of them: calls
//! that are killed, and messages that are refused (`cni-conformance stress`).

use super::Scenario;
use super::interrupt::interrupted;
use super::rollback::{FAILED, on_a_used_node};

fn a_signalled_add_leaves_nothing(scenario: Scenario) {
    interrupted(scenario);
}

fn add_with_any_system_call_failing_leaves_nothing(scenario: Scenario) {
    on_a_used_node(scenario, FAILED);
}

macro_rules! each_scenario {
    ($($module:ident: $scenario:ident),*; $tests:tt) => { $(
        mod $module {
            tests! { $scenario $tests }
        }
    )* };
}

macro_rules! tests {
    ($scenario:ident ($($test:ident)*)) => { $(
        #[test]
        fn $test() {
            crate::kinds::$scenario.run(|_| super::$test(crate::crash::$scenario));
        }
    )* };
}

each_scenario! {
    ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, host_device: HOST_DEVICE, tap: TAP, dummy: DUMMY;
    (
        a_signalled_add_leaves_nothing
        add_with_any_system_call_failing_leaves_nothing
    )
}
