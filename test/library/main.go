// Command library prints the existing objects of the resources in its arguments, and then their changes. It is a complete
// program that uses pkg/source. KUBECONFIG names the cluster.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client := must(source.NewClient(must(clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")))))
	catalog := must(client.Catalog(ctx))
	var all sync.WaitGroup
	for _, name := range os.Args[1:] {
		resource := must(catalog.Find(discovery.Parse(name)))
		target := source.Target{Resource: resource, Collection: event.Collection{Group: resource.Group, Resource: resource.Name}}
		collection := source.NewCollection(source.Options{Client: client, Target: target, Handler: source.HandlerFunc(show)})
		all.Go(func() { log.Print(name, ": ", collection.Run(ctx, event.Position{})) })
	}
	all.Wait()
}

func show(_ context.Context, s source.Signal) error {
	if o := s.Object; o != nil {
		fmt.Println(s.Kind, o.APIVersion, o.Kind, o.Namespace, o.Name, o.ResourceVersion)
	}
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
