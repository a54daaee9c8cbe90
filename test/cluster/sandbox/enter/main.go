// Command enter is the first program of every container: it finishes what clone
// began (root filesystem, credentials, limits) and then becomes the container's
// own program. With "join" as argument it runs one more program in a container
// that exists. It is separate from the cluster's program because it starts once per
// container, and links nothing that is slow to start.
package main

import (
	"fmt"
	"os"

	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

func main() {
	var err error
	if len(os.Args) == 3 && os.Args[1] == "join" {
		err = sandbox.Join(os.Args[2])
	} else {
		err = sandbox.Enter()
	}
	fmt.Fprintln(os.Stderr, "enter:", err)
	os.Exit(125)
}
