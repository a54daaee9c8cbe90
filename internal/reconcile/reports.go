package reconcile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// takeReports gives the translator what is new of the proxies, and reports whether anything is. translating must be held.
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

// infrastructure returns what runs for a Gateway together with what its proxies lack; nil where nothing runs.
func infrastructure(runs *translate.Infrastructure, r *deliver.Report) *translate.Infrastructure {
	if runs == nil {
		return nil
	}
	i := *runs
	i.Class, i.Ports = "", nil // for open alone
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

// setListenerFaults gives the translator the listeners that the proxies cannot serve.
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

// setRouteFaults gives the translator the routes that the proxies cannot carry out.
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

// reportTrouble calls ClusterOptions.Trouble where what is wrong with the proxies of a Gateway is other than before. Of a Gateway for which none are to run it says
// nothing: that its pods go does not mean that all of them serve.
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

// maxSentences is how many sentences a message has.
const maxSentences = 3

// sentences puts the first ones into one message.
func sentences(all []string) string {
	if len(all) > maxSentences {
		all = append(slices.Clone(all[:maxSentences]), "and "+strconv.Itoa(len(all)-maxSentences)+" more")
	}
	return strings.Join(all, ". ")
}
