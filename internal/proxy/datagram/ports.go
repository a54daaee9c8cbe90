package datagram

import (
	"fmt"
	"os"
)

// LocalPorts is how many ports the kernel has to choose local ones from, of which each session takes one, whatever its endpoint; everybody else in the network
// namespace has the rest, resolvers of names among them. Where that cannot be told it is Linux's default.
func LocalPorts() int {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	return portsIn(string(text))
}

func portsIn(text string) int {
	const first, last = 32768, 60999
	var from, to int
	if n, _ := fmt.Sscan(text, &from, &to); n != 2 || from < 1 || to < from || to > 65535 {
		from, to = first, last
	}
	return to - from + 1
}
