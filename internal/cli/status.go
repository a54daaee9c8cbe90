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
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the objects of a running gateway with their conditions",
		Long: `Asks a running gateway on this machine for its objects and prints what each one's
conditions say, and what in the manifests could not be used.`,
		Example: "  moongate status\n  moongate status --admin-address 127.0.0.1:9902 -o yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := fetchStatus(address)
			if err != nil {
				return &exitError{exitProblems, err}
			}
			if format != "table" {
				return printAs(stdout, format, status)
			}
			return printStatus(stdout, status)
		},
	}
	cmd.Flags().StringVar(&address, "admin-address", admin.DefaultAddress, "where the gateway's admin server listens")
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}

func fetchStatus(address string) (*admin.Status, error) {
	client := http.Client{Timeout: statusTimeout}
	resp, err := client.Get("http://" + address + "/status")
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
	if err := show.Table(w, objects, func(*show.Object) string { return "" }); err != nil {
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
