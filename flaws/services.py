# SPDX-License-Identifier: Apache-2.0
"""The stages of the services beside the shop, by their names."""
from account_stage import AccountStage
from menu_stage import MenuStage
from tasks_stage import TasksStage

STAGES = {stage.service: stage for stage in (MenuStage, AccountStage, TasksStage)}
