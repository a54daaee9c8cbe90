// Package deliver carries generations of configuration to proxies and brings their answers back: what they serve, which ports are
// taken, what they cannot carry out. It exists so that the control loop need not know where proxies are. Local
// delivers to a proxy in this process, Remote to proxies in others.
//
// It must not import translate, reconcile, source, status or cli.
package deliver
