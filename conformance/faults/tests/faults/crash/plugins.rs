//! The same for each of the other interface plugins. What the kernel refuses is a rule of the kit, `faults.add-is-all-or-nothing`.

use super::Scenario;
use super::rollback::{FAILED, INTERRUPTED, on_a_used_node};
use crate::interface_plugins::InterfacePlugin;

fn a_signalled_add_leaves_nothing(_: InterfacePlugin, scenario: Scenario) {
    on_a_used_node(scenario, INTERRUPTED);
}

fn add_with_any_system_call_failing_leaves_nothing(_: InterfacePlugin, scenario: Scenario) {
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
            crate::interface_plugins::$scenario.run(|kind| super::$test(kind, crate::crash::$scenario));
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
