// Package orca parses the load reports of endpoints (Open Request Cost Aggregation, xds.data.orca.v3.OrcaLoadReport):
// those in response fields, and the messages of xds.service.orca.v3.OpenRcaService. It exists so that a load balancer
// need not know how an endpoint has reported.
//
// It does no I/O and imports nothing of Moongate except message.
package orca
