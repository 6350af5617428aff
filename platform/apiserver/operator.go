package apiserver

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/deploy"
)

// OperatorAccount is the service account of the operator.
const OperatorAccount = "system:serviceaccount:roost-system:roost-operator"

// AsOperator returns a connection with the rights of the operator's service account.
func (server *Server) AsOperator() *rest.Config {
	return server.As(OperatorAccount, "system:serviceaccounts", "system:serviceaccounts:roost-system")
}

// InstallOperator writes the CustomResourceDefinitions and the manifests of the operator. It does not start an operator.
func InstallOperator(ctx context.Context, admin client.Client) error {
	if err := Install(ctx, admin); err != nil {
		return err
	}
	if err := create(ctx, admin, "operator.yaml", ""); err != nil {
		return err
	}
	return create(ctx, admin, "roles.yaml", "")
}

// NewOperatorNamespace creates a namespace in which the operator has its rights.
func NewOperatorNamespace(ctx context.Context, admin client.Client, name string) error {
	return create(ctx, admin, "namespace.yaml", name)
}

// create writes the objects of a manifest. A name replaces the namespace `web`.
func create(ctx context.Context, admin client.Client, file, name string) error {
	text, err := deploy.Files.ReadFile(file)
	if err != nil {
		return err
	}
	if name != "" {
		text = bytes.ReplaceAll(text, []byte(": web\n"), []byte(": "+name+"\n"))
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return err
		}
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
