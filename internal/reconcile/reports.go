package reconcile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// takeReports passes changes of the proxies to the translator, and reports whether there are any. The caller must hold translating.
func (c *Cluster) takeReports() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	reports := c.o.Delivery.Reports()
	for i := range reports {
		r := &reports[i]
		g := c.gateway(r.Gateway)
		namespace, name, _ := strings.Cut(r.Gateway, "/")
		c.setListenerFaults(g, r, namespace, name)
		c.setRouteFaults(g, r, namespace, name)
		c.reportTrouble(g, r, namespace, name)
		c.o.Translator.SetRateLimitFault(namespace, name, r.RateLimits)
		c.o.Translator.SetInfrastructure(namespace, name, infrastructure(g.infrastructure, r))
		c.tidy(r.Gateway)
	}
	return len(reports) > 0
}

// infrastructure combines what runs for a Gateway with the reports of its proxies; nil if nothing runs.
func infrastructure(runs *translate.Infrastructure, r *deliver.Report) *translate.Infrastructure {
	if runs == nil {
		return nil
	}
	i := *runs
	i.Class, i.Ports = "", nil // only open uses them
	var lagging []string
	if i.Lagging != "" {
		lagging = append(lagging, i.Lagging)
	}
	switch {
	case r.Serving:
		i.Lagging = sentences(slices.Concat(lagging, r.Overdue, r.Others))
	case i.Waiting == "" && len(r.Overdue) > 0:
		i.Waiting = sentences(r.Overdue)
	default:
		i.Lagging = sentences(slices.Concat(lagging, r.Others))
	}
	return &i
}

// setListenerFaults passes the listeners that the proxies cannot serve to the translator.
func (c *Cluster) setListenerFaults(g *gateway, r *deliver.Report, namespace, name string) {
	now := make(map[string]translate.ListenerFault, len(r.Listeners))
	for key, f := range r.Listeners {
		fault := translate.ListenerFault{Message: f.Message, Refused: f.Refused, Others: f.Others}
		now[key] = fault
		if g.listenerFaults[key] != fault {
			c.o.Logger.Warn("a proxy cannot serve a listener, it tries again every few seconds", "listener", key, "others-do", fault.Others, "error", fault.Message)
			c.o.Translator.SetListenerFault(key, namespace, name, &fault)
		}
	}
	for key := range g.listenerFaults {
		if _, still := now[key]; !still {
			c.o.Translator.SetListenerFault(key, namespace, name, nil)
		}
	}
	g.listenerFaults = now
}

// setRouteFaults passes the routes that the proxies cannot apply to the translator.
func (c *Cluster) setRouteFaults(g *gateway, r *deliver.Report, namespace, name string) {
	for key, message := range r.Routes {
		if g.routeFaults[key] != message {
			c.o.Translator.SetRouteFault(key, namespace, name, &translate.RouteFault{Message: message})
		}
	}
	for key := range g.routeFaults {
		if _, still := r.Routes[key]; !still {
			c.o.Translator.SetRouteFault(key, namespace, name, nil)
		}
	}
	g.routeFaults = r.Routes
}

// reportTrouble calls ClusterOptions.Trouble if what is wrong with the proxies of a Gateway has changed. It does not call it for a
// Gateway for which no proxies should run: the end of its pods does not mean that all proxies serve.
func (c *Cluster) reportTrouble(g *gateway, r *deliver.Report, namespace, name string) {
	now := ""
	if c.leading {
		now = sentences(slices.Concat(r.Overdue, r.Rejected))
	}
	if now == g.trouble {
		return
	}
	g.trouble = now
	if c.o.Trouble != nil && c.leading && g.spec != nil {
		c.o.Trouble(namespace, name, now)
	}
}

// maxSentences is the maximum number of sentences in a message.
const maxSentences = 3

// sentences joins the first sentences into one message.
func sentences(all []string) string {
	if len(all) > maxSentences {
		all = append(slices.Clone(all[:maxSentences]), "and "+strconv.Itoa(len(all)-maxSentences)+" more")
	}
	return strings.Join(all, ". ")
}
