package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// statusTimeout limits a query; the gateway answers it from memory.
const statusTimeout = 10 * time.Second

// watchPeriod is the interval in which status --watch queries a gateway on this host, watchClusterPeriod that for a cluster, which
// may have thousands of objects.
const (
	watchPeriod        = time.Second
	watchClusterPeriod = 5 * time.Second
)

func newStatus(stdout, stderr io.Writer) *cobra.Command {
	var address, format string
	var cluster clusterFlags
	var watch bool
	ask := func(ctx context.Context) (*admin.Status, error) {
		if cluster.use {
			return clusterStatus(ctx, cluster)
		}
		status, err := fetchStatus(ctx, address)
		if err != nil {
			return nil, &exitError{exitProblems, err}
		}
		return status, nil
	}
	cmd := &cobra.Command{
		Use:   "status [KIND [NAME...] | KIND/NAME...]",
		Short: "Show the objects of a running gateway, or of a cluster, with their conditions",
		Long: `Asks a running gateway on this machine for its objects, and prints the conditions of each
one, and what in the manifests could not be used. Arguments select objects, like those of kubectl get.

With --kube it reads the Gateway API objects of a cluster instead, as kubectl would. Objects of other
controllers are listed without an assessment.

With --watch it continues, and prints objects and problems again when they change.`,
		Example: `  moongate status
  moongate status httproutes -n shop
  moongate status gateway/public httproute/cart --watch
  moongate status --admin-address 127.0.0.1:9902 -o yaml
  moongate status --kube -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cluster.check(cmd); err != nil {
				return err
			}
			filter, err := newObjectFilter(cluster.namespace, args)
			if err != nil {
				return err
			}
			if watch {
				if format != "table" {
					return usage("--watch prints tables: leave out -o %s", format)
				}
				ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				period := watchPeriod
				if cluster.use {
					period = watchClusterPeriod
				}
				w := &statusWatch{out: stdout, errs: stderr, filter: filter, ask: func() (*admin.Status, error) { return ask(ctx) }}
				return w.run(ctx, period)
			}
			status, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			objects, missing := filter.apply(status)
			if format != "table" {
				err = printAs(stdout, format, status)
			} else if len(objects) > 0 || missing == nil {
				err = printStatus(stdout, objects, status.Problems)
			}
			if err == nil {
				err = missing
			}
			if err == nil && cluster.use && len(status.Problems) > 0 {
				return &exitError{code: exitProblems} // some objects that were asked for could not be read
			}
			return err
		},
	}
	addressVar(cmd.Flags(), &address, "admin-address", admin.DefaultAddress, "address of the gateway's admin server")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "continue, and print objects again when they change")
	cluster.add(cmd)
	askSoon := func(cmd *cobra.Command) *admin.Status { // nil if there is no answer
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		status, err := ask(ctx)
		if err != nil {
			return nil
		}
		return status
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var status *admin.Status
		if len(args) > 0 || strings.Contains(typed, "/") {
			status = askSoon(cmd)
		}
		return startingWith(typed, completeObjects(cluster.namespace, status, args, typed)), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return namespacesOf(askSoon(cmd)), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}

func fetchStatus(ctx context.Context, address string) (*admin.Status, error) {
	var status admin.Status
	return &status, fetchAdmin(ctx, address, "/status", &status)
}

// fetchAdmin reads the response of a running gateway's admin server for a path, as JSON.
func fetchAdmin(ctx context.Context, address, path string, into any) error {
	client := http.Client{Timeout: statusTimeout}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return fmt.Errorf("%q is not a host and port: %w", address, err)
	}
	// The server rejects hostnames that another site could own, unless the request cannot come from a web page.
	req.Header.Set("Sec-Fetch-Site", "none")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no gateway answers at %s (%w); start one with moongate run, or name the address of another", address, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	path, _, _ = strings.Cut(path, "?")
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest: // the body explains the error
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return usage("%s does not answer %s: %s", address, path, oneLine(string(text)))
	default:
		return fmt.Errorf("%s answers %s to %s; is it the admin server of a moongate, and of this version?", address, resp.Status, path)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s does not answer %s as a moongate does: %w", address, path, err)
	}
	return nil
}

func printStatus(w io.Writer, objects []*show.Object, problems []admin.Problem) error {
	if err := show.Table(w, objects, nowhere); err != nil {
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "%s: %s\n", markOf(p), problemLine(p)); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is the place of objects whose manifests are not known.
func nowhere(*show.Object, string) string { return "" }
