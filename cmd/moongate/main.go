// Command moongate is the gateway, the controller and all tools in one binary; see internal/cli for its verbs.
package main

import (
	"os"

	"github.com/moongate-dev/moongate/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
