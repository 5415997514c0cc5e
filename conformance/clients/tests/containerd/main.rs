//! containerd on our plugins: through `ctr run --cni`, and through CRI as a kubelet uses it.

mod networks;
mod ports;

mod arguments;
mod cri;
mod ctr;
mod dhcp;
mod failures;
mod installer;
mod removal;
mod times;
mod types;
