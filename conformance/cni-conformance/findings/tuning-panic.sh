# tuning: args.cni.sysctl without a sysctl in the config is a panic
#
# CONVENTIONS has args for what a caller adds; parseConf writes it into a map that is nil where the config has no sysctl of its own.
# (rule conventions.args-are-optional)
# seen: panic: assignment to entry in nil map
ip netns add a
CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_NETNS=/run/netns/a CNI_IFNAME=eth0 CNI_PATH=$P "$P/tuning" <<'END'
{"cniVersion":"1.1.0","name":"n","type":"tuning","args":{"cni":{"sysctl":{"net.core.somaxconn":"500"}}},"prevResult":{"cniVersion":"1.1.0"}}
END
