package discovery

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownResources has the resources that kube-apiserver 1.36 serves without additions and that can be watched, in its
// order of preference: a group ("-" is core) and its version, then its resources with kind, scope and short names.
const ownResources = `
- v1
	configmaps ConfigMap namespaced cm
	endpoints Endpoints namespaced ep
	events Event namespaced ev
	limitranges LimitRange namespaced limits
	namespaces Namespace cluster ns
	nodes Node cluster no
	persistentvolumeclaims PersistentVolumeClaim namespaced pvc
	persistentvolumes PersistentVolume cluster pv
	pods Pod namespaced po
	podtemplates PodTemplate namespaced
	replicationcontrollers ReplicationController namespaced rc
	resourcequotas ResourceQuota namespaced quota
	secrets Secret namespaced
	serviceaccounts ServiceAccount namespaced sa
	services Service namespaced svc
apiregistration.k8s.io v1
	apiservices APIService cluster
apps v1
	controllerrevisions ControllerRevision namespaced
	daemonsets DaemonSet namespaced ds
	deployments Deployment namespaced deploy
	replicasets ReplicaSet namespaced rs
	statefulsets StatefulSet namespaced sts
events.k8s.io v1
	events Event namespaced ev
autoscaling v2
	horizontalpodautoscalers HorizontalPodAutoscaler namespaced hpa
batch v1
	cronjobs CronJob namespaced cj
	jobs Job namespaced
certificates.k8s.io v1
	certificatesigningrequests CertificateSigningRequest cluster csr
networking.k8s.io v1
	ingressclasses IngressClass cluster
	ingresses Ingress namespaced ing
	ipaddresses IPAddress cluster ip
	networkpolicies NetworkPolicy namespaced netpol
	servicecidrs ServiceCIDR cluster
policy v1
	poddisruptionbudgets PodDisruptionBudget namespaced pdb
rbac.authorization.k8s.io v1
	clusterrolebindings ClusterRoleBinding cluster
	clusterroles ClusterRole cluster
	rolebindings RoleBinding namespaced
	roles Role namespaced
storage.k8s.io v1
	csidrivers CSIDriver cluster
	csinodes CSINode cluster
	csistoragecapacities CSIStorageCapacity namespaced
	storageclasses StorageClass cluster sc
	volumeattachments VolumeAttachment cluster
	volumeattributesclasses VolumeAttributesClass cluster vac
admissionregistration.k8s.io v1
	mutatingadmissionpolicies MutatingAdmissionPolicy cluster
	mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding cluster
	mutatingwebhookconfigurations MutatingWebhookConfiguration cluster
	validatingadmissionpolicies ValidatingAdmissionPolicy cluster
	validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding cluster
	validatingwebhookconfigurations ValidatingWebhookConfiguration cluster
apiextensions.k8s.io v1
	customresourcedefinitions CustomResourceDefinition cluster crd,crds
scheduling.k8s.io v1
	priorityclasses PriorityClass cluster pc
coordination.k8s.io v1
	leases Lease namespaced
node.k8s.io v1
	runtimeclasses RuntimeClass cluster
discovery.k8s.io v1
	endpointslices EndpointSlice namespaced
resource.k8s.io v1
	deviceclasses DeviceClass cluster
	resourceclaims ResourceClaim namespaced
	resourceclaimtemplates ResourceClaimTemplate namespaced
	resourceslices ResourceSlice cluster
flowcontrol.apiserver.k8s.io v1
	flowschemas FlowSchema cluster
	prioritylevelconfigurations PriorityLevelConfiguration cluster
`

// Builtin returns the catalog of a cluster that serves only Kubernetes' own resources.
// A name without a group means one of these, even if a cluster has custom resources of that name.
func Builtin() *Catalog {
	var (
		groups []*metav1.APIGroup
		lists  []*metav1.APIResourceList
	)
	for line := range strings.Lines(strings.TrimSpace(ownResources)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") {
			gv := metav1.GroupVersionForDiscovery{GroupVersion: f[0] + "/" + f[1], Version: f[1]}
			if f[0] == "-" {
				f[0], gv.GroupVersion = "", f[1]
			}
			groups = append(groups, &metav1.APIGroup{Name: f[0], PreferredVersion: gv, Versions: []metav1.GroupVersionForDiscovery{gv}})
			lists = append(lists, &metav1.APIResourceList{GroupVersion: gv.GroupVersion})
			continue
		}
		r := metav1.APIResource{Name: f[0], Kind: f[1], Namespaced: f[2] == "namespaced", Verbs: metav1.Verbs{"get", "list", "watch"}}
		if len(f) > 3 {
			r.ShortNames = strings.Split(f[3], ",")
		}
		l := lists[len(lists)-1]
		l.APIResources = append(l.APIResources, r)
	}
	return NewCatalog(groups, lists, nil)
}
