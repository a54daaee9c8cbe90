// Command backend is what the Gateway leads to: an HTTP server that ends as many do, as
// soon as it is told to, finishing only what it has begun. It exists because a server
// that goes on for a while by itself would hide what a rollout does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is for requests under way.
const grace = 10 * time.Second

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, os.Getenv("POD_NAME"))
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: grace}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		ended <- server.Shutdown(bounded)
	}()
	err := server.ListenAndServe()
	if errors.Is(err, http.ErrServerClosed) {
		err = <-ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
