// Command echo is what the cluster's own test deploys: it says who answered, and
// can be told to fail its probes. It stands for any program that knows
// nothing of the cluster.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// drain is how long the program still answers after SIGTERM, while the service
// proxies take its address out.
const drain = 3 * time.Second

type answer struct {
	Pod, Version string
	User, Group  int
	// Capabilities are the effective ones, hexadecimal as in /proc.
	Capabilities, NoNewPrivs, Seccomp string
	Environment                       []string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		os.Exit(check())
	}
	var unready, unhealthy atomic.Bool
	probe := func(fails *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if fails.Load() {
				http.Error(w, "as told", http.StatusServiceUnavailable)
			}
		}
	}
	tell := func(flag *atomic.Bool) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { flag.Store(r.PathValue("value") == "true") }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", probe(&unready))
	mux.HandleFunc("GET /healthy", probe(&unhealthy))
	mux.HandleFunc("POST /unready/{value}", tell(&unready))
	mux.HandleFunc("POST /unhealthy/{value}", tell(&unhealthy))
	mux.HandleFunc("GET /file/{path...}", serveFile)
	mux.HandleFunc("POST /write/{path...}", writeFile)
	mux.HandleFunc("GET /resolve/{name}", resolve)
	mux.HandleFunc("GET /fetch/{url...}", fetch)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("request", r.Host)
		json.NewEncoder(w).Encode(self())
	})
	// For loads: any method, and nothing in the log.
	mux.HandleFunc("/quiet", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, os.Getenv("POD_NAME"))
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		fmt.Println("ending")
		time.Sleep(drain)
		server.Shutdown(context.Background())
		os.Exit(0)
	})
	fmt.Println("listening")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {} // AfterFunc ends the program
}

func self() answer {
	a := answer{
		Pod: os.Getenv("POD_NAME"), Version: os.Getenv("VERSION"), User: os.Getuid(), Group: os.Getgid(), Environment: os.Environ(),
	}
	status, _ := os.ReadFile("/proc/self/status") // absent fields say enough
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "CapEff":
			a.Capabilities = value
		case "NoNewPrivs":
			a.NoNewPrivs = value
		case "Seccomp":
			a.Seccomp = value
		}
	}
	return a
}

// check is an exec probe: whether the server in this container answers.
func check() int {
	response, err := http.Get("http://127.0.0.1:8080/ready")
	if err != nil || response.StatusCode != http.StatusOK {
		fmt.Println("not ready", err)
		return 1
	}
	return 0
}

func serveFile(w http.ResponseWriter, r *http.Request) {
	content, err := os.ReadFile("/" + r.PathValue("path"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Write(content)
}

func writeFile(w http.ResponseWriter, r *http.Request) {
	if err := os.WriteFile("/"+r.PathValue("path"), []byte("x"), 0o644); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}

func resolve(w http.ResponseWriter, r *http.Request) {
	addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.PathValue("name"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, strings.Join(addresses, " "))
}

// fetch asks another server, as a client within the cluster.
func fetch(w http.ResponseWriter, r *http.Request) {
	client := &http.Client{Timeout: 2 * time.Second}
	response, err := client.Get("http://" + r.PathValue("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	io.Copy(w, response.Body)
}
