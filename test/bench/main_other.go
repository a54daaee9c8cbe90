//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs Linux, for it reads the kernel's schedstat")
	os.Exit(1)
}
