# loopback: a result of 0.4.0 is not of its form
#
# SPEC 0.4.0, Result: each entry of ips has a version, "4" or "6". loopback prints the newest form with the cniVersion of the config; before
# 0.3.0, where ip4 and ip6 take the place of interfaces and ips, it does so as well. (rules results.ips, results.form)
# seen: {"address":"127.0.0.1/8","interface":0}
ip netns add a
CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_NETNS=/run/netns/a CNI_IFNAME=lo CNI_PATH=$P "$P/loopback" \
    <<<'{"cniVersion":"0.4.0","name":"n","type":"loopback"}' | tr -d ' \n'
