// Command standin stands in for the proxy where only provisioning is tested: it
// is ready, serves nothing, and ends when it is told.
package main

import (
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	go http.ListenAndServe(":15901", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
}
