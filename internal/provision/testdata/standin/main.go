// Command standin replaces the proxy in tests of provisioning: it is ready, serves nothing, and ends on a signal.
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
