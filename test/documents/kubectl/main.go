// Command kubectl is kubectl, built from its own module, so that what documents tell their readers to type is run by the
// real one whatever the machine has. It must never be more than that.
package main

import (
	"os"

	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(1)
	}
}
