// Package kube tests kubestore and the manifests with the API server of Kubernetes.
package kube
