package plane

import clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

const contextName = "test-cluster"

func clientcmdConfig(server string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	config.CurrentContext = contextName
	return config
}
