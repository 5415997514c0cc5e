# tuning: its result has the MTU from before
#
# SPEC 5, Success: mtu is that of the interface. tuning sets 1400, and prints the 1500 of prevResult. (rule add.result-mtu-is-the-links)
# seen: "mtu":1500
ip netns add a
ip -n a link add eth0 mtu 1500 type bridge
CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_NETNS=/run/netns/a CNI_IFNAME=eth0 CNI_PATH=$P "$P/tuning" <<'END' | tr -d ' \n'
{"cniVersion":"1.1.0","name":"n","type":"tuning","mtu":1400,
 "prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1500,"sandbox":"/run/netns/a"}]}}
END
ip -n a link show eth0 | grep -o 'mtu 1400'
