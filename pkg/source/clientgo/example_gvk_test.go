package clientgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/source/clientgo"
)

// What a typed client returns does not say what it is, and neither do its items.
func ExampleRestoreGVK() {
	pods := &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}}}
	if err := clientgo.RestoreGVK(scheme.Scheme, pods); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pods.GroupVersionKind())
	fmt.Println(pods.Items[0].GroupVersionKind())
	// Output:
	// /v1, Kind=PodList
	// /v1, Kind=Pod
}

// Where the kind cannot be known, the error says why.
func ExampleRestoreGVK_unknowable() {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}
	err := clientgo.RestoreGVK(scheme.Scheme, object)
	fmt.Println(errors.Is(err, clientgo.ErrUnknowable))
	fmt.Println(err)
	// Output:
	// true
	// restore kind of *v1.PartialObjectMetadata: only the object could name its kind, and it does not
}

// An informer's handlers and listers see complete objects.
func ExampleRestoreGVKTransform() {
	informer := cache.NewSharedIndexInformer(onePod{}, &corev1.Pod{}, 0, nil)
	if err := informer.SetTransform(clientgo.RestoreGVKTransform(scheme.Scheme)); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		text, _ := json.Marshal(obj.(*corev1.Pod).TypeMeta)
		fmt.Println(string(text))
		stop()
	}})
	informer.RunWithContext(ctx)
	// Output:
	// {"kind":"Pod","apiVersion":"v1"}
}

// onePod stands for a client: it lists one pod, and nothing happens to it.
type onePod struct{}

func (onePod) List(metav1.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}}}, nil
}

func (onePod) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

func (onePod) IsWatchListSemanticsUnSupported() bool { return true }
