package e2e

import "testing"

// TestTasksOfRoutes does what the pages about rules of HTTPRoutes say, with backends that echo.
func TestTasksOfRoutes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"headers", "matching", "redirects", "weights"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTask(t, name, map[int]*backend{3000: newBackend(t, "app", nil), 3001: newBackend(t, "other", nil)})
		})
	}
}
