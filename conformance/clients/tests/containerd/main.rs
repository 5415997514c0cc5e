//! containerd on our plugins: through `ctr run --cni`, and through CRI as a kubelet uses it.

mod networks;
mod ports;

mod cri;
mod ctr;
mod dhcp;
mod failures;
mod installer;
mod interface_plugins;
mod pod_arguments;
mod removal;
