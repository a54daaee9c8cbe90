// Command backend is what the routes of the scale tests lead to. It listens on two ports and
// answers with the one that was asked.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	ended := make(chan error)
	for _, port := range []string{"8080", "8081"} {
		go func() {
			ended <- http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, port) // who asked may be gone
			}))
		}()
	}
	fmt.Fprintln(os.Stderr, <-ended)
	os.Exit(1)
}
