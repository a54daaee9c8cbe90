package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestMergedGatewaysTask serves what docs/tasks/merged-gateways.md shows. Outside of a cluster Gateways share ports in any case, by the same rules.
func TestMergedGatewaysTask(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	app := newBackend(t, "app", nil)
	page := fenced(t, "docs/tasks/merged-gateways.md", "yaml")[0].use()
	page = strings.ReplaceAll(page, "port: 80\n    protocol: HTTP", fmt.Sprintf("port: %d\n    protocol: HTTP", port))
	g := start(t, map[string]string{"page.yaml": page, "app.yaml": service("blog", "app", app)})
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	if got := (ask{url: url, host: "blog.example.com"}).do(t); got.StatusCode != 200 || got.echo.Backend != "app" {
		t.Errorf("the blog: %d %s", got.StatusCode, got.body)
	}
	if got := (ask{url: url, host: "shop.example.com"}).do(t); got.StatusCode != 404 {
		t.Errorf("the shop, which has no route: %d %s", got.StatusCode, got.body)
	}
	if stdout, _, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check: exit code %d\n%s", code, stdout)
	}
	g.write("page.yaml", strings.Replace(page, "hostname: shop.example.com", "hostname: blog.example.com", 1))
	if stdout, _, code := moongate("check", "-f", g.dir); code == 0 || !strings.Contains(stdout, `the same as that of listener "http" of Gateway blog/blog, which is as old and comes first by name`) {
		t.Errorf("check of a conflict: exit code %d\n%s", code, stdout)
	}
	if got := (ask{url: url, host: "blog.example.com"}).do(t); got.StatusCode != 200 {
		t.Errorf("the blog, whose hostname another Gateway asks for: %d %s", got.StatusCode, got.body)
	}
}
