"""The kinds of Ray: RayCluster, RayJob and RayService, and the pods that KubeRay makes for a cluster."""
