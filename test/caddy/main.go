// Command caddy is Caddy with its standard modules, for `make bench`. It is a module of its own, so that nothing it needs is the benchmark's.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
