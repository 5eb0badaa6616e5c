import torch


def batch_get_orient_svd(rel_rest_pose, rel_pose_skeleton):
    """Rotation of the root that turns the joints of the rest pose (B, J, 3) onto those of the skeleton."""
    H = torch.bmm(rel_rest_pose.transpose(1, 2), rel_pose_skeleton)
    U, _, V = torch.svd(H)
    return torch.bmm(V, U.transpose(1, 2))


def rotation_angle(rot_mat):
    trace = rot_mat.diagonal(dim1=1, dim2=2).sum(-1)
    return torch.acos((trace - 1) / 2)


def axis_angle(rot_mat):
    angle = rotation_angle(rot_mat)
    axis = torch.stack(
        [
            rot_mat[:, 2, 1] - rot_mat[:, 1, 2],
            rot_mat[:, 0, 2] - rot_mat[:, 2, 0],
            rot_mat[:, 1, 0] - rot_mat[:, 0, 1],
        ],
        dim=1,
    )
    return angle[:, None] * torch.nn.functional.normalize(axis, dim=1)


class RootFilter:
    """One-euro-like smoothing of the root rotation of a video."""

    def __init__(self, smoothing=0.7):
        self.smoothing, self.state = smoothing, None

    def __call__(self, rotvec):
        self.state = rotvec if self.state is None else torch.lerp(rotvec, self.state, self.smoothing)
        return self.state


torch.manual_seed(0)
rest = torch.tensor([[0.0, 0.12, 0.01], [0.06, -0.09, -0.01], [-0.06, -0.09, -0.01]])  # spine and both hips
roll = torch.deg2rad(torch.linspace(0, 170, 12))  # a cartwheel
turns = torch.zeros(12, 3, 3)
turns[:, 0, 0] = turns[:, 1, 1] = roll.cos()
turns[:, 0, 1], turns[:, 1, 0] = -roll.sin(), roll.sin()
turns[:, 2, 2] = 1.0
predicted = rest @ turns.transpose(1, 2)
predicted[..., 2] += 0.02 * torch.randn(12, 3)  # depth is what the network knows least

smooth = RootFilter()
rotvecs = axis_angle(batch_get_orient_svd(rest.expand(12, 3, 3), predicted))
track = torch.stack([smooth(rotvec) for rotvec in rotvecs])
print("root angle of the last frame:", track[-1].norm().item())
