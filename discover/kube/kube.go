package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/discover"
)

// settle is how long changes are gathered: a deployment changes its slices many times
// at once.
const settle = 100 * time.Millisecond

// Open is the discover.Opener of all sources, those of Kubernetes included. The error
// says why the cluster cannot be reached as configured.
func Open(s config.Source, log *slog.Logger) (discover.Source, error) {
	if s.Of() != "kubernetes" {
		return discover.Open(s, log)
	}
	at, namespace, err := reach(s.Kubernetes)
	if err != nil {
		return nil, err
	}
	client, parameters, err := newClient(at)
	if err != nil {
		return nil, err
	}
	return &source{Source: s, client: client, parameters: parameters, namespace: namespace, news: make(chan news, 1)}, nil
}

// reach says how to reach the cluster, and the namespace.
func reach(s config.KubernetesSource) (*rest.Config, string, error) {
	if s.Kubeconfig == "" {
		at, err := rest.InClusterConfig()
		if err != nil {
			return nil, "", fmt.Errorf("no kubeconfig, and not in a pod: %w", err)
		}
		own, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		return at, cmp.Or(s.Namespace, strings.TrimSpace(string(own)), metav1.NamespaceDefault), nil
	}
	file := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig}, &clientcmd.ConfigOverrides{})
	at, err := file.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := file.Namespace()
	return at, cmp.Or(s.Namespace, namespace), err
}

// newClient is a client of EndpointSlices alone: the whole one links the types of
// every API there is.
func newClient(at *rest.Config) (rest.Interface, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors come as this
	at = rest.CopyConfig(at)
	at.GroupVersion = &discoveryv1.SchemeGroupVersion
	at.APIPath = "/apis"
	at.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	at.UserAgent = "wardrop"
	client, err := rest.RESTClientFor(at)
	return client, runtime.NewParameterCodec(scheme), err
}

// news is what the watch says last: all slices, or what is wrong.
type news struct {
	slices []*discoveryv1.EndpointSlice
	err    error
}

type source struct {
	config.Source
	client     rest.Interface
	parameters runtime.ParameterCodec
	namespace  string
	news       chan news // the last, if nobody took it yet
}

// put replaces news that nobody took. Only the reflector's goroutine calls it.
func (s *source) put(n news) {
	select {
	case <-s.news:
	default:
	}
	s.news <- n
}

// Run implements discover.Source.
func (s *source) Run(ctx context.Context, report func(discover.Found)) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	confirm := time.NewTicker(time.Duration(s.Interval))
	defer confirm.Stop()
	var last discover.Found
	known := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-confirm.C:
			if !known {
				continue
			}
		case n := <-s.news:
			n = s.later(ctx, n)
			last, known = discover.Found{Err: n.err}, true
			if n.err == nil {
				last = found(s.Source, n.slices)
			}
		}
		report(last)
	}
}

// later waits a moment for news that follow at once.
func (s *source) later(ctx context.Context, n news) news {
	moment := time.NewTimer(settle)
	defer moment.Stop()
	for {
		select {
		case n = <-s.news:
		case <-moment.C:
			return n
		case <-ctx.Done():
			return n
		}
	}
}

// watch lists and watches until ctx ends; the reflector does it anew after what the
// API server forgot, and waits longer after each failure.
func (s *source) watch(ctx context.Context) {
	var all []*discoveryv1.EndpointSlice
	failed := false
	tell := func(err error) {
		if err != nil && ctx.Err() == nil {
			failed = true
			s.put(news{err: err})
		}
	}
	store := cache.NewUndeltaStore(func(objects []any) {
		all = make([]*discoveryv1.EndpointSlice, 0, len(objects))
		for _, o := range objects {
			if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
				all = append(all, slice)
			}
		}
		failed = false
		s.put(news{slices: all})
	}, cache.MetaNamespaceKeyFunc)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &discoveryv1.EndpointSliceList{}
			err := s.request(o).Do(ctx).Into(list)
			tell(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := s.request(o).Watch(ctx)
			if o.SendInitialEvents != nil {
				return w, err // not every server can; a list follows
			}
			tell(err)
			if err == nil && failed { // it goes on where it was: what was listed holds again
				failed = false
				s.put(news{slices: all})
			}
			return w, err
		},
	}
	// What there is to say of failures is said by whoever takes the news.
	ctx = klog.NewContext(ctx, logr.Discard())
	cache.NewReflectorWithOptions(lw, &discoveryv1.EndpointSlice{}, store, cache.ReflectorOptions{Name: s.Name}).RunWithContext(ctx)
}

func (s *source) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = s.Kubernetes.Selector
	return s.client.Get().Namespace(s.namespace).Resource("endpointslices").VersionedParams(&o, s.parameters)
}
