package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// statusTimeout bounds the whole question; the answer comes from memory.
const statusTimeout = 10 * time.Second

func newStatus(stdout io.Writer) *cobra.Command {
	var address, format string
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the objects of a running gateway, or of a cluster, with their conditions",
		Long: `Asks a running gateway on this machine for its objects and prints what each one's
conditions say, and what in the manifests could not be used.

With --kube it asks a cluster for its Gateway API objects instead, as kubectl would. What belongs to other
controllers is listed without a judgement.`,
		Example: "  moongate status\n  moongate status --admin-address 127.0.0.1:9902 -o yaml\n  moongate status --kube -n shop",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cluster.check(cmd); err != nil {
				return err
			}
			var status *admin.Status
			var err error
			if cluster.use {
				status, err = clusterStatus(cmd.Context(), cluster)
			} else if status, err = fetchStatus(address); err != nil {
				err = &exitError{exitProblems, err}
			}
			if err != nil {
				return err
			}
			if format != "table" {
				err = printAs(stdout, format, status)
			} else {
				err = printStatus(stdout, status)
			}
			if err == nil && cluster.use && len(status.Problems) > 0 {
				return &exitError{code: exitProblems} // it was not all that was asked for
			}
			return err
		},
	}
	cmd.Flags().StringVar(&address, "admin-address", admin.DefaultAddress, "where the gateway's admin server listens")
	cluster.add(cmd)
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}

func fetchStatus(address string) (*admin.Status, error) {
	client := http.Client{Timeout: statusTimeout}
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return nil, fmt.Errorf("--admin-address %q is not a host and port: %w", address, err)
	}
	// The server refuses names that a foreign site could own, unless no page can have made the request.
	req.Header.Set("Sec-Fetch-Site", "none")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no gateway answers at %s (%w); start one with moongate run, or name another with --admin-address", address, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	var status admin.Status
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s to /status; is it the admin server of a moongate?", address, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		return nil, fmt.Errorf("%s does not answer /status as a moongate does: %w", address, err)
	}
	return &status, nil
}

func printStatus(w io.Writer, status *admin.Status) error {
	objects, err := show.Objects(status.Items, controllerName)
	if err != nil {
		return err
	}
	if err := show.Table(w, objects, func(*show.Object, string) string { return "" }); err != nil {
		return err
	}
	for _, p := range status.Problems {
		mark := "problem"
		if p.Ignored {
			mark = "ignored"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", mark, problemLine(p)); err != nil {
			return err
		}
	}
	return nil
}
