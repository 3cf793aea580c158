package consumer_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// files is a source of messages that are in files.
type files []string

func (f *files) Next(context.Context) (consumer.Message, error) {
	if len(*f) == 0 {
		return consumer.Message{}, io.EOF
	}
	value, err := os.ReadFile((*f)[0])
	*f = (*f)[1:]
	return consumer.Message{Topic: "k8s.prod-eu-1.apps.deployments", Value: value}, err
}

// Who made a change comes in an event of its own, behind that of the change. The copy of the objects and what is known about their users are
// joined by the state of the object.
func ExampleAttributions() {
	var state consumer.State
	var attributions consumer.Attributions
	source := files{"../event/testdata/modified.json", "../event/testdata/attributed.json"}
	for change, err := range state.Changes(context.Background(), &source) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if change.Event.Type == event.Attributed {
			attributions.Take(change.Event)
			continue
		}
		fmt.Println(change.Event.Type, change.Event.Name, change.Event.ResourceVersion)
	}
	object, _ := state.Get(consumer.Name{Cluster: "prod-eu-1", Resource: "deployments.apps", Namespace: "shop", Name: "web"})
	if a := attributions.Of(object); a != nil && a.Request != nil {
		fmt.Println(object.ResourceVersion, "by", a.Request.Impersonated.Name, "via", a.Request.User.Name)
	}
	// Output:
	// modified web 1057
	// 1057 by alice@example.com via system:serviceaccount:ci:deployer
}
