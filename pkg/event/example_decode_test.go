package event_test

import (
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// message stands for the value of a Kafka record, or the data of a NATS message.
func message(name string) []byte {
	b, err := os.ReadFile(golden(name))
	if err != nil {
		panic(err)
	}
	return b
}

// A consumer's loop handles objects, events about collections, and types that a later version may add.
func ExampleParse() {
	for _, value := range [][]byte{message("added"), message("deleted-synthesised"), message("synced"), []byte(`{"specversion":"1.0","type":"com.example.order","id":"7"}`)} {
		e, err := event.Parse(value)
		switch {
		case errors.Is(err, event.ErrUnknownType):
			fmt.Println("not for us")
		case err != nil:
			fmt.Println(err) // to the dead letters
		case e.Type.OfCollection():
			fmt.Println(e.Collection, e.Type, "at", e.ResourceVersion)
		default:
			fmt.Println(e.Kind, e.Name, e.Type, "body known:", e.BodyKnown)
		}
	}
	// Output:
	// Pod web-0 added body known: true
	// Node worker-7 deleted body known: false
	// secrets:audit@payments synced at 2214
	// not for us
}

func ExampleReceived_Into() {
	e, err := event.Parse(message("added"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var pod corev1.Pod
	if err := e.Into(&pod); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Kind, pod.Namespace, pod.Name, pod.Spec.Containers[0].Image)
	// Output:
	// Pod shop web-0 nginx:1.29
}

func ExampleReceived_Into_unstructured() {
	e, err := event.Parse(message("modified"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var object unstructured.Unstructured
	if err := e.Into(&object); err != nil {
		fmt.Println(err)
		return
	}
	replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	fmt.Println(object.GroupVersionKind(), object.GetName(), replicas)
	// Output:
	// apps/v1, Kind=Deployment web 3
}

// An object of another kind is an error, not an empty object.
func ExampleReceived_Into_otherKind() {
	e, err := event.Parse(message("modified"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var pod corev1.Pod
	fmt.Println(errors.Is(e.Into(&pod), event.ErrOtherKind))
	// Output:
	// true
}
